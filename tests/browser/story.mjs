// Tests a whole story in a real browser. A user signs in, creates an agent, copies its key, sets its limits, and
// approves a pending payment. After the payment the user revokes the key and withdraws the money. This script also
// plays the agent, over plain HTTP.
//
//   STORY='{"base_url": …}' CHROMIUM=/usr/bin/chromium SHOTS=<folder> node tests/browser/story.mjs
//
// Screenshots of every page, in light and dark and at the width of a phone, are written to SHOTS.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

// The official Standard Webhooks library, from the demo receiver's dependencies.
const { Webhook } = createRequire(new URL("../../infra/local/webhooks/", import.meta.url))("standardwebhooks");

const story = JSON.parse(process.env.STORY);
const shots = process.env.SHOTS;
mkdirSync(shots, { recursive: true });

// With this timeout, a page that never loads fails the test.
const PATIENCE = 15_000;
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 360, height: 780 };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  // A container has no user namespace for the sandbox. Only our own pages are opened.
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});
const context = await browser.newContext({ viewport: DESK, locale: "en-US", timezoneId: "UTC" });
context.setDefaultTimeout(PATIENCE);
const page = await context.newPage();

// Problems that the browser reports: scripts and styles that the policy blocks, errors, and failed loads.
const objections = [];
page.on("console", (message) => {
  if (message.type() === "error") objections.push(`${page.url()}: ${message.text()}`);
});
page.on("pageerror", (error) => objections.push(`${page.url()}: ${error}`));

const step = (text) => console.log(`story: ${text}`);

const shoot = async (name) => {
  for (const [size, viewport] of [["desk", DESK], ["phone", PHONE]]) {
    await page.setViewportSize(viewport);
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      await page.screenshot({ path: join(shots, `${name}-${size}-${colorScheme}.png`), fullPage: true });
    }
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    assert.ok(!wide, `${name} scrolls sideways on a ${size}`);
  }
  await page.emulateMedia({ colorScheme: "light" });
  await page.setViewportSize(DESK);
};

// The agent's calls.

const passTime = async (seconds) => {
  const passed = await fetch(`${story.base_url}/_local/clock`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ advance_seconds: seconds }),
  });
  assert.equal(passed.status, 200);
};

const signInOn = async (where) => {
  await where.getByRole("link", { name: "Sign in" }).click();
  // The issuer may still have a session with this browser.
  const person = where.getByRole("button", { name: story.name });
  await person.or(where.getByText("Weather watcher")).first().waitFor();
  if (await person.count()) await person.click();
};

const call = async (method, path, key, body) => {
  const response = await fetch(`${story.base_url}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
};

// Finds the link to a page in the last email. Without a mail service, returns the link itself.
const linkTo = async (path) => {
  const link = `${story.base_url}${path}`;
  if (!story.inbox_url) {
    step("(no mail service here: the link is typed)");
    return link;
  }
  // If there was an earlier message, some minutes have to pass before the next one.
  await passTime(310);
  for (const end = Date.now() + PATIENCE; Date.now() < end; ) {
    const { emails } = await (await fetch(`${story.inbox_url}/store`)).json();
    const mail = emails.find((email) => email.body.text.includes(link));
    if (mail) {
      assert.deepEqual(mail.destination.to, [story.email]);
      return mail.body.text.split(/\s+/).find((word) => word === link);
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`nothing was mailed with ${link}`);
};

const weather = `${story.provider_url}/weather`;

const offer = async () => {
  const response = await fetch(weather);
  assert.equal(response.status, 402);
  return JSON.parse(Buffer.from(response.headers.get("payment-required"), "base64"));
};

const request = async (idempotencyKey) => ({
  payment_requirement: await offer(),
  max_payment_units: 20_000,
  original_request: { method: "GET", url: weather },
  idempotency_key: idempotencyKey,
});

try {
  step("a stranger is asked to sign in");
  await page.goto(`${story.dashboard_url}/decisions?result=block`);
  assert.match(page.url(), /\/dashboard\/sign-in/);
  await shoot("sign-in");
  await page.getByRole("link", { name: "Sign in" }).click();

  step("and signs in at the issuer");
  await page.getByRole("button", { name: story.name }).click();
  await page.waitForURL(/\/dashboard\/decisions\?result=block/);
  const [session] = (await context.cookies()).filter((cookie) => cookie.name.endsWith("purser-session"));
  assert.ok(session.httpOnly && session.sameSite === "Lax", JSON.stringify({ ...session, value: "…" }));

  step("creates an agent");
  await page.getByRole("link", { name: "Overview" }).first().click();
  await page.getByText("New agent", { exact: true }).click();
  await page.getByLabel("Name of the agent").fill("Weather watcher");
  await shoot("new-agent");
  await page.getByLabel("None: it can spend").check();
  await page.getByRole("button", { name: "Create agent" }).click();
  await page.getByRole("heading", { name: "Weather watcher" }).waitFor();
  await page.getByText("No limit", { exact: true }).first().waitFor();
  const agentUrl = page.url().split("?")[0];
  const agentId = agentUrl.split("/").pop();

  step("funds its wallet");
  const wallet = (await page.locator("#wallet").innerText()).match(/0x[0-9a-fA-F]{40}/)[0];
  const funded = await fetch(`${story.base_url}/_local/fund`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ wallet_address: wallet, units: 5_000_000 }),
  });
  assert.equal(funded.status, 200);

  step("copies its key, which is shown once");
  await page.getByRole("button", { name: "Create key" }).click();
  const shown = page.getByLabel("Agent key");
  const key = (await shown.inputValue()).trim();
  assert.match(key, /^gak_pub_[0-9a-f]{48}:gak_sec_[0-9a-f]{64}$/);
  await page.goto(agentUrl);
  assert.equal(await shown.count(), 0, "the key is shown once");
  assert.ok(!(await page.content()).includes(key.split(":")[1]), "and nowhere else");
  const me = await call("GET", "/mcp/agents/me", key);
  assert.deepEqual([me.status, me.body.agent_id], [200, agentId]);

  step("enables a service with a threshold");
  await page.locator("summary").filter({ hasText: "Lab Weather" }).first().click();
  const panel = page.locator("li.panel").filter({ hasText: "Lab Weather" }).first();
  for (const [label, dollars] of [["Limit per call", "0.05"], ["Daily limit", "0.5"], ["Approval threshold", "0.005"]]) {
    await panel.getByLabel(label, { exact: true }).fill(dollars);
    const box = panel.locator(".field.cap").filter({ hasText: label }).getByRole("checkbox");
    await box.uncheck();
  }
  await panel.getByLabel("Limit per call", { exact: true }).fill("a lot");
  await panel.getByRole("button", { name: "Save limits" }).click();
  await page.getByText("Nothing was saved.").waitFor();
  assert.equal(await panel.getByLabel("Daily limit", { exact: true }).inputValue(), "0.5", "what was typed is kept");
  objections.length = 0; // The browser reports the 400 of the wrong amount.
  await panel.getByLabel("Limit per call", { exact: true }).fill("0.05");
  await panel.getByRole("button", { name: "Save limits" }).click();
  await page.getByText("Saved. The new limits apply to the next payment.").waitFor();
  await shoot("agent");

  step("waits at the overview while the agent asks");
  await page.goto(story.dashboard_url);
  await page.getByText("No approval is pending.").first().waitFor();
  const body = await request("story-1");
  const asked = await call("POST", "/x402/authorize", key, body);
  assert.deepEqual([asked.status, asked.body.error], [402, "approval_required"], JSON.stringify(asked.body));
  const approval = page.locator(`[data-approval="${asked.body.approval_id}"]`);
  await approval.waitFor(); // It appears without a reload.
  assert.match(await page.title(), /1/);
  await shoot("overview");

  step("and approves");
  await page.getByRole("link", { name: /^Approvals/ }).click();
  await approval.waitFor();
  await approval.locator("summary").first().click();
  await approval.getByLabel(/Note/).fill("for the morning report");
  // The list is refreshed, and the typed text stays.
  await page.waitForTimeout(4_000);
  assert.equal(await approval.getByLabel(/Note/).inputValue(), "for the morning report");
  await shoot("approvals");
  await approval.getByRole("button", { name: /Approve/ }).click();
  await page.getByText("Approved. The payment is made when the agent repeats its request.").waitFor();
  const polled = await call("GET", `/approvals/${asked.body.approval_id}`, key);
  assert.deepEqual([polled.status, polled.body.status], [200, "approved"]);

  step("the agent's retry is executed, once");
  const retry = { ...body, approval_id: asked.body.approval_id };
  const authorized = await call("POST", "/x402/authorize", key, retry);
  assert.equal(authorized.status, 200, JSON.stringify(authorized.body));
  const { header_name: name, header_value: value } = authorized.body.payment;
  const paid = await fetch(weather, { headers: { [name]: value } });
  assert.equal(paid.status, 200);
  const complete = await call("POST", `/x402/settlements/${authorized.body.settlement_id}/complete`, key, {
    payment_response_header: paid.headers.get("payment-response"),
  });
  assert.deepEqual([complete.status, complete.body.receipt_status], [200, "confirmed"], JSON.stringify(complete.body));
  const again = await call("POST", "/x402/authorize", key, { ...retry, idempotency_key: "story-2" });
  assert.deepEqual([again.status, again.body.error], [409, "idempotent_replay"]);

  step("the receipt is confirmed");
  await page.goto(`${story.dashboard_url}/approvals`);
  await page.getByRole("link", { name: "Receipt" }).first().click();
  await page.getByText("confirmed", { exact: true }).first().waitFor();
  const receipt = await page.locator("main").innerText();
  assert.ok(receipt.includes(complete.body.tx_hash), receipt);
  const link = page.getByRole("link", { name: /block explorer/ }).first();
  assert.equal(await link.getAttribute("href"), `https://sepolia.basescan.org/tx/${complete.body.tx_hash}`);
  await shoot("receipt");

  step("the log has the escalation and the allow");
  await page.goto(`${story.dashboard_url}/decisions?agent_id=${agentId}`);
  const log = await page.locator("main").innerText();
  assert.match(log, /allow/i);
  assert.match(log, /Asked for approval (over|a rule)/);
  await shoot("decisions");

  step("finds the payment among the settlements, and its service in the catalog");
  await page.getByRole("link", { name: "Settlements" }).click();
  await page.getByLabel("Agent’s name", { exact: true }).fill("weather");
  await page.getByLabel("State", { exact: true }).selectOption("confirmed");
  await page.getByRole("button", { name: "Show" }).click();
  await page.waitForURL(/status=confirmed/);
  const settled = page.locator("table.list tbody tr");
  await settled.first().waitFor();
  assert.equal(await settled.count(), 1);
  await shoot("settlements");
  const csv = page.getByRole("link", { name: "Download as CSV" });
  const file = await context.request.get(new URL(await csv.getAttribute("href"), page.url()).href);
  assert.match(file.headers()["content-type"], /^text\/csv/);
  // The byte order mark tells spreadsheets that a file is UTF-8.
  const [heads, ...lines] = (await file.text()).replace(/^\uFEFF/, "").trimEnd().split("\r\n");
  assert.ok(heads.startsWith("decided_at,transaction_id,"), heads);
  assert.ok(lines.length === 1 && lines[0].includes(`,confirmed,${complete.body.tx_hash},`), lines.join("\n"));
  await settled.getByRole("link", { name: /Receipt/ }).first().click();
  await page.getByText(complete.body.tx_hash).first().waitFor();
  await page.getByRole("link", { name: "Catalog" }).click();
  await shoot("catalog");
  await page.getByLabel("Service or operation").fill("weather");
  await page.getByLabel("Agent’s name").fill("Weather watcher");
  await page.getByRole("button", { name: "Show" }).click();
  await page.waitForURL(/q=weather/);
  await page.getByText("Enabled for: ").first().waitFor();
  await page.getByText("Operations and prices").first().click();
  await page.getByText("at most").first().waitFor();
  await shoot("catalog-service");

  step("makes a webhook, sees its test event delivered, and sends it again");
  const calls = async () => (await fetch(story.program_url)).json();
  await page.getByRole("link", { name: "Webhooks" }).click();
  await page.getByText("There are no webhooks yet.").waitFor();
  await page.getByText("New webhook", { exact: true }).click();
  await page.getByLabel("URL", { exact: true }).fill(`${story.program_url}/`);
  await page.getByLabel(/^Description/).fill("Night shift");
  await page.getByRole("group", { name: "Events", exact: true }).getByLabel("Only these:").check();
  await page.getByLabel("Approval requested", { exact: true }).check();
  await page.getByRole("group", { name: "Agents", exact: true }).getByLabel("Only these:").check();
  await shoot("webhook-new");
  await page.getByRole("button", { name: "Create webhook" }).click();
  await page.getByText("Agents: choose at least one.").waitFor();
  objections.length = 0; // The browser reports the 400.
  await page.getByRole("group", { name: "Agents", exact: true }).getByLabel("All, including future ones").check();
  await page.getByRole("button", { name: "Create webhook" }).click();
  const secret = (await page.getByLabel("Webhook’s secret").inputValue()).trim();
  assert.match(secret, /^whsec_/);
  await shoot("webhook-secret");
  await page.getByRole("link", { name: "Webhooks" }).first().click();
  await shoot("webhooks");
  await page.getByRole("link", { name: "Night shift" }).click();
  assert.ok(!(await page.content()).includes(secret), "the secret is shown once");
  const webhookUrl = page.url();
  const deliveredAfter = async (count) => {
    for (let look = 0; (await calls()).length < count || !(await page.getByText("delivered", { exact: true }).count()); look += 1) {
      assert.ok(look < 100, "it was not delivered");
      await page.waitForTimeout(100);
      await page.getByRole("link", { name: "Look again" }).click();
      await page.reload();
    }
    assert.equal((await calls()).length, count);
  };
  await page.getByRole("button", { name: "Send a test event" }).click();
  await page.getByText("The test event was queued: see the deliveries.").waitFor();
  await deliveredAfter(1);
  await page.locator("#deliveries").getByRole("button", { name: "Send again" }).click();
  await page.getByText("The event was queued again: see the deliveries.").waitFor();
  await deliveredAfter(2);
  await shoot("webhook");

  step("reads operators' pages");
  await page.getByRole("link", { name: "Operators" }).click();
  await page.getByText("Payees and prices").first().waitFor();
  await page.getByLabel("Name, id, endpoint or payee").fill("newcomer");
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByText("Payees and prices").click();
  await page.getByText("at most").first().waitFor();
  await shoot("operator-catalog");
  await page.getByRole("link", { name: "Waiting changes" }).click();
  await page.getByText("news.read").waitFor();
  await shoot("operator-changes");
  await page.getByRole("link", { name: "Freezes" }).click();
  await page.getByText("reported stolen").waitFor();
  await page.getByText("with a token", { exact: true }).waitFor();
  await page.locator("summary", { hasText: "Freeze" }).click();
  await shoot("operator-freezes");

  step("withdraws a change as an operator, and offers an agent");
  await page.getByRole("link", { name: "Waiting changes" }).click();
  await page.getByRole("row", { name: "news.read" }).getByRole("link").click();
  await page.getByText("Accept the change").first().click();
  await shoot("operator-service");
  await page.getByText("Withdraw the change").first().click();
  await page.getByLabel("The current payee and price stay in effect").check();
  await page.getByRole("button", { name: "Withdraw the change" }).click();
  await page.getByText("Withdrawn. The current payee and price stay in effect.").waitFor();
  const forOperators = page.getByRole("navigation", { name: "For operators" });
  await forOperators.getByRole("link", { name: "Agents", exact: true }).click();
  await page.getByLabel("ID of the agent").fill(agentId);
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByText("Offer to another owner").first().click();
  await shoot("operator-agent");

  step("a verified webhook and a mail tell of the next one: the link leads through the sign-in to it, and it is rejected there");
  const second = await call("POST", "/x402/authorize", key, { ...(await request("story-3")), metadata: { purpose: "second" } });
  const other = second.status === 400 ? await call("POST", "/x402/authorize", key, await request("story-3")) : second;
  assert.equal(other.body.error, "approval_required", JSON.stringify(other.body));
  await page.goto(webhookUrl);
  await deliveredAfter(3);
  const [, , told] = await calls();
  const event = new Webhook(secret).verify(told.body, told.headers);
  assert.deepEqual([event.type, event.data.approval_id], ["purser.approval.asked.v1", other.body.approval_id]);
  await page.getByRole("button", { name: "Switch off" }).click();
  await page.getByText("The webhook is switched off. It receives no further events.").waitFor();
  const asking = await linkTo(`/dashboard/approvals/${agentId}/${other.body.approval_id}`);
  const reader = await browser.newContext({ viewport: DESK, locale: "en-US", timezoneId: "UTC" });
  reader.setDefaultTimeout(PATIENCE);
  const mailed = await reader.newPage();
  await mailed.goto(asking);
  assert.match(mailed.url(), /\/dashboard\/sign-in/, "a link alone opens nothing");
  await signInOn(mailed);
  await mailed.waitForURL(asking);
  await mailed.getByRole("heading", { name: "Waiting for you" }).waitFor();
  await page.goto(asking);
  await shoot("approval");
  await mailed.getByRole("button", { name: /Reject/ }).click();
  await mailed.getByText("Rejected. Nothing was paid.").waitFor();
  await reader.close();

  step("several wait: two are approved together, after a summary");
  const waiting = [];
  for (const purpose of ["morning", "noon", "evening"]) {
    const wanted = { ...(await request(`story-${purpose}`)), metadata: { purpose } };
    waiting.push((await call("POST", "/x402/authorize", key, wanted)).body.approval_id);
  }
  assert.equal(new Set(waiting).size, 3, "each is a request of its own");
  await page.goto(`${story.dashboard_url}/approvals`);
  for (const id of waiting.slice(0, 2)) await page.locator(`[data-approval="${id}"]`).getByRole("checkbox").check();
  await shoot("approvals-selected");
  await page.getByRole("button", { name: "Approve selected…" }).click();
  await page.getByRole("heading", { name: "Approve 2 payments" }).waitFor();
  await shoot("approvals-summary");
  await page.getByRole("button", { name: /^Approve 2 payments of / }).click();
  await page.getByRole("heading", { name: "2 payments approved" }).waitFor();
  assert.equal(await page.getByText("approved", { exact: true }).count(), 2);
  await shoot("approvals-outcome");

  step("one of them is withdrawn before the agent uses it");
  await page.locator("table.list").getByRole("link", { name: "Weather watcher" }).first().click();
  await page.getByRole("button", { name: "Withdraw approval" }).click();
  await page.locator("dialog").getByRole("button", { name: "Withdraw approval" }).click();
  await page.getByText("The approval was withdrawn. Nothing was paid.").waitFor();

  step("and the third is approved with a higher threshold");
  await page.goto(`${story.dashboard_url}/approvals/${agentId}/${waiting[2]}`);
  await page.getByText("Wallet’s balance").waitFor();
  await page.getByText("Approve and raise the limit").click();
  await shoot("approval-raise");
  await page.getByRole("button", { name: /^Approve and raise to / }).click();
  await page.getByText("Approved, and the limit was raised.").waitFor();

  step("the key is revoked, and the next call is 401");
  await page.goto(agentUrl);
  await page.locator("#keys").getByRole("button", { name: "Revoke" }).first().click();
  await page.locator("dialog").getByRole("button", { name: "Revoke" }).click();
  await page.getByText("The key was revoked. The next call with it is refused.").waitFor();
  const refused = await call("GET", "/mcp/agents/me", key);
  assert.deepEqual([refused.status, refused.body.error], [401, "invalid_agent_key"]);

  step("with the keyboard alone");
  await page.goto(story.dashboard_url);
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");

  step("a form from elsewhere is refused");
  const forged = await context.request.post(`${agentUrl}/freeze`, {
    headers: { origin: "https://elsewhere.example", "sec-fetch-site": "cross-site" },
    form: {},
  });
  assert.equal(forged.status(), 403);

  step("sees where they are signed in, and ends a session elsewhere");
  const elsewhere = await browser.newContext();
  await elsewhere.addCookies(await context.cookies());
  // The last use of a session is recorded once a minute.
  await passTime(90);
  await page.goto(`${story.dashboard_url}/sessions`);
  await page.getByText("this one", { exact: true }).waitFor();
  await shoot("sessions");
  const copy = await elsewhere.newPage();
  await copy.goto(`${story.dashboard_url}/sessions`);
  await page.getByRole("button", { name: "End all" }).click();
  await page.locator("dialog").getByRole("button", { name: "End all" }).click();
  await page.getByText("All your sessions have ended, including this one.").waitFor();
  await copy.goto(`${story.dashboard_url}/sessions`);
  assert.match(copy.url(), /\/dashboard\/sign-in/, "a copied cookie is worthless");
  await elsewhere.close();
  // The times of the issuer are in whole seconds, so a sign-in within the same second would count as an earlier one.
  await page.waitForTimeout(1_100);
  await page.goto(story.dashboard_url);
  await page.getByRole("link", { name: "Sign in" }).click();
  await page.getByRole("button", { name: story.name }).click();
  await page.getByRole("heading", { name: "Weather watcher" }).or(page.getByText("Weather watcher")).first().waitFor();

  step("chooses what they are told");
  await page.getByRole("link", { name: "Notices" }).click();
  await page.getByRole("heading", { name: "Notices" }).waitFor();
  await page.getByText(story.email).first().waitFor();
  await shoot("notices");
  await page.getByLabel(/^Slack or Slack-compatible URL/).fill("https://127.0.0.1/");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Nothing was saved.").waitFor();
  objections.length = 0; // The browser reports the 400 of the private address.
  await page.getByLabel(/^Slack or Slack-compatible URL/).fill("https://hooks.example.invalid/x");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.", { exact: true }).waitFor();
  assert.ok(!(await page.content()).includes("hooks.example.invalid/x"), "the URL is not shown again");
  await shoot("notices-on");
  await page.getByLabel("Remove it").check();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("Saved.", { exact: true }).waitFor();

  step("names an address for the money");
  await page.goto(agentUrl);
  await page.getByText("Add payout address", { exact: true }).click();
  await page.getByLabel("Address", { exact: true }).fill("0x12");
  await page.getByRole("button", { name: "Save address" }).click();
  await page.getByText(/^Address: /).first().waitFor();
  objections.length = 0; // The browser reports the 400 of the wrong address.
  await shoot("payout-address");
  await page.getByLabel("Address", { exact: true }).fill("0x90F79bf6EB2c4f870365E785982E1f101E93b906");
  await page.getByRole("button", { name: "Save address" }).click();
  await page.getByText("The payout address was set. The time from which it can be used is shown below.").waitFor();
  const payouts = page.locator("#payouts");
  await payouts.getByText("not yet", { exact: true }).waitFor();
  assert.equal(await payouts.getByText("Pay out", { exact: true }).count(), 0, "nothing is paid out yet");
  await shoot("payout-waits");

  step("and takes it back a day later, without scripts");
  await passTime(86_400);
  const plain = await browser.newContext({ viewport: PHONE, javaScriptEnabled: false });
  const scriptless = await plain.newPage();
  await scriptless.goto(story.dashboard_url);
  await signInOn(scriptless);
  await scriptless.getByText("Weather watcher").first().waitFor();
  await scriptless.goto(agentUrl);
  await scriptless.locator("#payouts summary").filter({ hasText: "Pay out" }).click();
  for (const colorScheme of ["light", "dark"]) {
    await scriptless.emulateMedia({ colorScheme });
    await scriptless.screenshot({ path: join(shots, `pay-out-scriptless-${colorScheme}.png`), fullPage: true });
  }
  await scriptless.locator("#payouts").getByLabel("Amount", { exact: true }).fill("1.25");
  await scriptless.getByLabel(/^I have compared the address: 0x90F79bf6/).check();
  await scriptless.locator("#payouts").getByRole("button", { name: "Pay out" }).click();
  await scriptless.getByText("Submitted. The receipt becomes final when the chain shows it, within minutes.").waitFor();
  await plain.close();
  await page.goto(story.dashboard_url);
  await signInOn(page);
  await page.getByText("Weather watcher").first().waitFor();
  await page.goto(agentUrl);
  await page.getByText("under way", { exact: true }).waitFor();
  await shoot("payout-under-way");
  await page.goto(`${story.dashboard_url}/decisions?result=payout`);
  await page.getByText("payout to").first().waitFor();
  await shoot("payouts-log");

  step("makes a fleet of agents, and finds one");
  for (let n = 1; n <= 27; n += 1) {
    await page.goto(story.dashboard_url);
    await page.getByText("New agent", { exact: true }).click();
    await page.getByLabel("Name of the agent").fill(`Researcher ${n}`);
    await page.getByRole("button", { name: "Create agent" }).click();
    await page.getByRole("heading", { name: `Researcher ${n}` }).waitFor();
  }
  await page.goto(`${story.dashboard_url}/agents`);
  await page.getByRole("link", { name: "Next" }).click();
  await page.getByRole("link", { name: "First page" }).waitFor();
  await page.getByRole("table").getByRole("link", { name: "Weather watcher" }).waitFor();
  await shoot("fleet");
  await page.getByLabel("Name or ID").fill("WEATHER");
  await page.keyboard.press("Enter");
  await page.waitForURL(/q=WEATHER/);
  assert.equal(await page.locator("table.list tbody tr").count(), 1);
  await page.getByRole("link", { name: "Clear" }).click();
  await shoot("fleet-first");

  step("freezes one agent in one click, and undoes it; labels two");
  await page.getByRole("button", { name: "Freeze Researcher 27" }).click();
  await page.getByText("1 agent was frozen.").waitFor();
  await shoot("fleet-undo");
  await page.getByRole("button", { name: "Undo: unfreeze 1 agent" }).click();
  await page.getByText("1 agent was unfrozen.").waitFor();
  await page.getByLabel("Select Researcher 27").check();
  await page.getByLabel("Select Researcher 26").check();
  await page.getByRole("button", { name: "Label…" }).click();
  await page.getByLabel("Label, as key=value").fill("team=search");
  await shoot("fleet-label");
  await page.keyboard.press("Enter");
  await page.getByText("2 agents were labelled.").waitFor();
  await page.getByRole("link", { name: "team=search" }).first().click();
  assert.equal(await page.locator("table.list tbody tr").count(), 2);
  await page.getByRole("link", { name: "Freeze all", exact: true }).click();
  await page.getByText(/^You own \d+ agents\./).waitFor();
  await shoot("freeze-all");
  await page.goto(`${story.dashboard_url}/settlements`);
  await page.getByLabel("Agent’s name").fill("weather");
  await page.getByRole("button", { name: "Show" }).click();
  await page.waitForURL(/agent=weather/);
  await page.locator("table.list tbody tr").first().waitFor();
  await shoot("fleet-settlements");

  step("and signs out");
  await page.goto(story.dashboard_url);
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByText("You have signed out.").or(page.getByText("You are signed out")).first().waitFor();
  await page.goto(story.dashboard_url);
  assert.match(page.url(), /\/dashboard\/sign-in/);

  assert.deepEqual(objections, [], "the browser objects to nothing");
  step("done");
} catch (error) {
  await page.screenshot({ path: join(shots, "failure.png"), fullPage: true }).catch(() => {});
  console.error(`story: at ${page.url()}`);
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
}

// The whole story in a real browser: a person signs in, makes an agent, hands out its key, sets what it may spend, sees
// a payment waiting, approves it and sees it paid; then takes the key away. The agent is this script, over plain HTTP.
//
//   STORY='{"base_url": …}' CHROMIUM=/usr/bin/chromium SHOTS=<folder> node tests/browser/story.mjs
//
// Screenshots of every page, in light and dark and at the width of a phone, are left in SHOTS.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const story = JSON.parse(process.env.STORY);
const shots = process.env.SHOTS;
mkdirSync(shots, { recursive: true });

// Bounded, so that a page that hangs is a failure and not a hung test.
const PATIENCE = 15_000;
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  // In a container there is no user namespace to sandbox in; the pages are our own.
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});
const context = await browser.newContext({ viewport: DESK, locale: "en-US", timezoneId: "UTC" });
context.setDefaultTimeout(PATIENCE);
const page = await context.newPage();

// What the browser itself objects to: scripts and styles that the policy refuses, errors, failed loads.
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

// What an agent does.

const call = async (method, path, key, body) => {
  const response = await fetch(`${story.base_url}${path}`, {
    method,
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  });
  return { status: response.status, body: await response.json() };
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
  await page.getByLabel("E-mail").fill(story.email);
  await page.getByLabel("Password").fill("wrong");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").waitFor();
  objections.length = 0; // The browser reports the 403 of the wrong password.
  await shoot("issuer");
  await page.getByLabel("E-mail").fill(story.email);
  await page.getByLabel("Password").fill(story.password);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.waitForURL(/\/dashboard\/decisions\?result=block/);
  const [session] = (await context.cookies()).filter((cookie) => cookie.path === "/dashboard" && cookie.value.includes("."));
  assert.ok(session.httpOnly && session.sameSite === "Lax", JSON.stringify({ ...session, value: "…" }));

  step("creates an agent");
  await page.getByRole("link", { name: "Overview" }).first().click();
  await page.getByText("New agent", { exact: true }).click();
  await page.getByLabel("Name of the agent").fill("Weather watcher");
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
  for (const [label, dollars] of [["Cap per call", "0.05"], ["Cap per day", "0.5"], ["DecisionKeys a person above", "0.005"]]) {
    await panel.getByLabel(label, { exact: true }).fill(dollars);
    const box = panel.locator(".field.cap").filter({ hasText: label }).getByRole("checkbox");
    await box.uncheck();
  }
  await panel.getByLabel("Cap per call", { exact: true }).fill("a lot");
  await panel.getByRole("button", { name: "Save limits" }).click();
  await page.getByText("Nothing was saved.").waitFor();
  assert.equal(await panel.getByLabel("Cap per day", { exact: true }).inputValue(), "0.5", "what was typed is kept");
  objections.length = 0; // The browser reports the 400 of the wrong amount.
  await panel.getByLabel("Cap per call", { exact: true }).fill("0.05");
  await panel.getByRole("button", { name: "Save limits" }).click();
  await page.getByText("Saved. The next payment is judged by the new limits.").waitFor();
  await shoot("agent");

  step("waits at the overview while the agent asks");
  await page.goto(story.dashboard_url);
  await page.getByText("Nothing is waiting.").first().waitFor();
  const body = await request("story-1");
  const asked = await call("POST", "/x402/authorize", key, body);
  assert.deepEqual([asked.status, asked.body.error], [402, "approval_required"], JSON.stringify(asked.body));
  const approval = page.locator(`[data-approval="${asked.body.approval_id}"]`);
  await approval.waitFor(); // without a reload
  assert.match(await page.title(), /1/);
  await shoot("overview");

  step("and approves");
  await page.getByRole("link", { name: /^Approvals/ }).click();
  await approval.waitFor();
  await approval.getByLabel(/Note/).fill("for the morning report");
  // The list is looked after meanwhile, and what is being typed stays.
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
  assert.match(log, /escalat|asked/i);
  await shoot("decisions");

  step("a rejected payment stays refused");
  const second = await call("POST", "/x402/authorize", key, { ...(await request("story-3")), metadata: { purpose: "second" } });
  const other = second.status === 400 ? await call("POST", "/x402/authorize", key, await request("story-3")) : second;
  assert.equal(other.body.error, "approval_required", JSON.stringify(other.body));
  await page.goto(`${story.dashboard_url}/approvals`);
  await page.locator(`[data-approval="${other.body.approval_id}"]`).getByRole("button", { name: /Reject/ }).click();
  await page.getByText("Rejected. Nothing was paid.").waitFor();

  step("the key is revoked, and the next call is 401");
  await page.goto(agentUrl);
  await page.locator("#keys").getByRole("button", { name: "Revoke" }).first().click();
  await page.locator("dialog").getByRole("button", { name: "Revoke" }).click();
  await page.getByText("Revoked. The next call with that key is refused.").waitFor();
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

// Tests a fleet of agents in a real browser. Its owner does five tasks, each with at most four clicks from the
// overview: with a mouse and with the keyboard alone, with and without scripts, on a desktop and on a phone, in light
// and in dark.
//
//   STORY='{"dashboard_url": …}' CHROMIUM=/usr/bin/chromium SHOTS=<folder> node tests/browser/fleet.mjs
//
// Afterwards axe-core checks the pages. Screenshots of them are written to SHOTS.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const story = JSON.parse(process.env.STORY);
const shots = process.env.SHOTS;
mkdirSync(shots, { recursive: true });

const PATIENCE = 15_000;
const MAX_CLICKS = 4;
const DESK = { width: 1280, height: 900 };
const PHONE = { width: 390, height: 844 };
// Every input method and every condition occurs at least once. Every task is done in each of these visits.
const VISITS = [
  { by: "mouse", scripts: true, viewport: DESK, colorScheme: "light" },
  { by: "keyboard", scripts: true, viewport: DESK, colorScheme: "dark" },
  { by: "mouse", scripts: false, viewport: PHONE, colorScheme: "dark" },
  { by: "keyboard", scripts: false, viewport: PHONE, colorScheme: "light" },
];

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  // A container has no user namespace for the sandbox. Only our own pages are opened.
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});

const call = async (path) => {
  const response = await fetch(`${story.base_url}${path}`, { headers: { authorization: `Bearer ${story.token}` } });
  assert.equal(response.status, 200, path);
  return response.json();
};

// A user of a page. Counts the clicks, and checks that each page fits the width of its window.
const visitor = async ({ by, scripts, viewport, colorScheme }) => {
  const context = await browser.newContext({
    viewport, colorScheme, javaScriptEnabled: scripts, locale: "en-US", timezoneId: "UTC",
  });
  context.setDefaultTimeout(PATIENCE);
  const page = await context.newPage();
  let clicks = 0;

  const fits = async () => {
    const wide = await page.evaluate(() => document.documentElement.scrollWidth > window.innerWidth);
    assert.ok(!wide, `${page.url()} scrolls sideways`);
  };
  // Presses Tab until the target has the focus, like a user without a mouse.
  const reach = async (target) => {
    await target.waitFor();
    for (let presses = 0; presses < 500; presses += 1) {
      if (await target.evaluate((element) => element === document.activeElement)) return;
      await page.keyboard.press("Tab");
    }
    throw new Error(`the keyboard does not reach ${target}`);
  };

  return {
    page,
    scripts,
    isPhone: viewport === PHONE,
    // Follows a link, presses a button, or opens a collapsed element.
    press: async (target) => {
      clicks += 1;
      if (by === "mouse") {
        await target.click();
      } else {
        await reach(target);
        await page.keyboard.press("Enter");
      }
      await page.waitForLoadState();
    },
    type: async (target, text) => {
      if (by === "mouse") {
        await target.fill(text);
      } else {
        await reach(target);
        await page.keyboard.press("ControlOrMeta+A");
        await page.keyboard.type(text);
      }
    },
    // Enters a date. The keys for a date field differ from the field's value.
    date: async (target, day) => {
      if (by === "mouse") {
        await target.fill(day);
      } else {
        await reach(target);
        await page.keyboard.type(day.replace(/^(\d+)-(\d+)-(\d+)$/, "$2$3$1"));
        assert.equal(await target.inputValue(), day);
      }
    },
    // Presses Enter in a field, since the search has no button.
    enter: async () => {
      clicks += 1;
      await page.keyboard.press("Enter");
      await page.waitForLoadState();
    },
    // Selects one of several options. This is input, like typed text, and doesn't count as a click.
    tick: async (target) => {
      if (by === "mouse") {
        await target.check();
      } else {
        await reach(target);
        await page.keyboard.press("Space");
        assert.ok(await target.isChecked());
      }
    },
    fits,
    // Starts the task at the overview.
    begin: async () => {
      await page.goto(story.dashboard_url);
      await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
      await fits();
      clicks = 0;
    },
    end: async (errand) => {
      await fits();
      assert.ok(clicks <= MAX_CLICKS, `${errand}: ${clicks} clicks`);
      console.log(`fleet: ${errand}: ${clicks} clicks`);
    },
    signIn: async () => {
      await page.goto(story.dashboard_url);
      await fits();
      await page.getByRole("link", { name: "Sign in" }).click();
      await page.getByRole("button", { name: story.name }).click();
      await page.getByRole("heading", { name: "Overview", level: 1 }).waitFor();
    },
    fail: () => page.screenshot({ path: join(shots, "fleet-failure.png"), fullPage: true }).catch(() => {}),
    close: () => context.close(),
  };
};

// The tasks.

const findByHash = async (at, payment) => {
  const { page } = at;
  await at.type(page.getByRole("searchbox", { name: /^Search ids/ }), payment.tx_hash);
  await at.enter();
  await page.waitForURL(/\/receipts\//);
  assert.ok((await page.locator("main").innerText()).includes(payment.tx_hash), page.url());
};

const raiseTheLimit = async (at, round) => {
  const { page } = at;
  const why = page.getByRole("link", { name: /^limit per call of .* exceeded$/ }).first();
  await at.press(why);
  await page.waitForURL(/#service-/);
  const panel = page.locator(`[id="${new URL(page.url()).hash.slice(1)}"]`);
  // The script opens the element that the address names.
  if (!at.scripts) await at.press(panel.locator("summary").first());
  const limit = panel.getByLabel("Limit per call", { exact: true });
  await limit.waitFor();
  await at.fits();
  const raised = `0.${90 + round}`;
  assert.ok(Number(await limit.inputValue()) < Number(raised));
  await at.type(limit, raised);
  await at.press(panel.getByRole("button", { name: "Save limits" }));
  await page.getByText("Saved. The new limits apply to the next payment.").waitFor();
  assert.ok((await page.locator("main").innerText()).includes(`$${raised}`));
};

const freezeALabel = async (at, frozen) => {
  const { page } = at;
  const label = "team=data";
  const labelled = (await call(`/agents?limit=100&label=${label}`)).agents;
  const active = labelled.filter((agent) => agent.status === "active");
  assert.ok(active.length > 1, `${active.length} agents`);
  await at.press(page.getByRole("link", { name: "Freeze all", exact: true }));
  await at.type(page.getByLabel("Label", { exact: true }), label);
  await at.press(page.getByRole("button", { name: "Only with this label" }));
  await page.getByText(`You own ${labelled.length} agents with ${label}.`).waitFor();
  await at.fits();
  await at.press(page.getByRole("button", { name: `Freeze all with ${label}` }));
  await page.getByText(`${active.length} agents were frozen.`).waitFor();
  const after = (await call("/agents?limit=100")).agents;
  for (const agent of after) {
    const isLabelled = labelled.some((one) => one.agent_id === agent.agent_id);
    const isFrozen = agent.status === "frozen";
    assert.equal(isFrozen, isLabelled || frozen.includes(agent.agent_id), agent.name);
  }
};

const approveThree = async (at) => {
  const { page } = at;
  const waiting = page.locator("[data-approval]");
  const before = await waiting.count();
  assert.ok(before >= 5, `${before} wait`);
  const ids = [];
  for (const place of [0, 2, 3]) {
    const box = waiting.nth(place).getByRole("checkbox");
    ids.push(await box.getAttribute("value"));
    await at.tick(box);
  }
  await at.press(page.getByRole("button", { name: "Approve selected…" }));
  await page.getByRole("heading", { name: "Approve 3 payments" }).waitFor();
  await at.fits();
  await at.press(page.getByRole("button", { name: /^Approve 3 payments of \$/ }));
  await page.getByRole("heading", { name: "3 payments approved" }).waitFor();
  for (const id of ids) assert.equal((await call(`/approvals/${id}`)).status, "approved");
};

const exportAMonth = async (at, payment) => {
  const { page } = at;
  const [year, month] = payment.authorized_at.split("-");
  const last = new Date(Date.UTC(Number(year), Number(month), 0)).getUTCDate();
  await at.press(page.getByRole("link", { name: "Settlements", exact: true }));
  await page.getByRole("heading", { name: "Settlements", level: 1 }).waitFor();
  await at.fits();
  if (at.isPhone) await at.press(page.locator("summary").filter({ hasText: "Filters" }));
  await at.date(page.getByLabel("From (UTC)"), `${year}-${month}-01`);
  await at.date(page.getByLabel("To (UTC)"), `${year}-${month}-${last}`);
  await at.press(page.getByRole("button", { name: "Show" }));
  await page.waitForURL(/from=/);
  await at.fits();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    at.press(page.getByRole("link", { name: "Download as CSV" })),
  ]);
  const lines = readFileSync(await download.path(), "utf8").trim().split("\r\n");
  // If the days of the fleet span two months, this month has only a part of the payments.
  const settlementsOfMonth = `/settlements?from=${year}-${month}-01&to=${year}-${month}-${last}&limit=100`;
  const { settlements, next_cursor: rest } = await call(settlementsOfMonth);
  assert.equal(rest, null, "the month fits a page");
  assert.equal(lines.length, 1 + settlements.length);
  assert.ok(lines.slice(1).every((line) => line.includes(`${year}-${month}-`)), lines[1]);
};

let at;
try {
  const payment = (await call("/settlements?status=confirmed&limit=1")).settlements[0];
  const agents = (await call("/agents?limit=100")).agents;
  const frozen = agents.filter((agent) => agent.status === "frozen").map((agent) => agent.agent_id);
  for (const [round, visit] of VISITS.entries()) {
    const { by, scripts, viewport, colorScheme } = visit;
    console.log(`fleet: ${by}, ${scripts ? "with" : "without"} scripts, ${viewport.width} px, ${colorScheme}`);
    at = await visitor(visit);
    await at.signIn();
    const { page } = at;
    for (const [errand, run] of [
      ["finds a payment by its hash", () => findByHash(at, payment)],
      ["sees why an agent was refused, and raises that limit", () => raiseTheLimit(at, round)],
      ["freezes everything with one label", () => freezeALabel(at, frozen)],
      ["approves three of those that wait", () => approveThree(at)],
      ["exports a month", () => exportAMonth(at, payment)],
    ]) {
      await at.begin();
      await run();
      await at.end(errand);
      // Prepares the next visit, which needs agents that can be frozen.
      const undo = page.getByRole("button", { name: /^Undo/ });
      if (await undo.count()) {
        await undo.click();
        await page.getByText(/were unfrozen/).waitFor();
      }
    }
    await at.close();
  }

  console.log("fleet: axe-core looks at the pages");
  at = await visitor(VISITS[0]);
  await at.signIn();
  const { page } = at;
  const approval = await page.locator("[data-approval]").first().getAttribute("data-approval");
  const asking = (await call(`/approvals?status=pending&limit=1`)).approvals[0];
  for (const [name, path] of Object.entries({
    overview: "",
    agents: "/agents",
    agent: `/agents/${agents[0].agent_id}`,
    decisions: "/decisions",
    settlements: "/settlements",
    approvals: "/approvals",
    approval: `/approvals/${asking.agent_id}/${asking.approval_id}`,
    "approve-several": `/approvals/bulk?decision=approve&approval=${approval}`,
    "freeze-all": "/freeze-all",
    search: "/search?q=support",
    catalog: "/catalog",
    audit: "/audit-log",
    operator: "/operator/catalog",
  })) {
    await page.goto(`${story.dashboard_url}${path}`);
    for (const [size, viewport, colorScheme] of [["desk", DESK, "light"], ["phone", PHONE, "dark"]]) {
      await page.setViewportSize(viewport);
      await page.emulateMedia({ colorScheme });
      await at.fits();
      await page.screenshot({ path: join(shots, `fleet-${name}-${size}-${colorScheme}.png`), fullPage: true });
      await page.evaluate(axe);
      const { violations, passes } = await page.evaluate(() => globalThis.axe.run());
      const found = violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
      assert.deepEqual(found, [], `${name}, ${size}, ${colorScheme}`);
      assert.ok(passes.length > 10);
    }
  }
  console.log("fleet: done");
} catch (error) {
  await at?.fail();
  console.error(`fleet: at ${at?.page.url()}`);
  console.error(error);
  process.exitCode = 1;
} finally {
  await browser.close();
}

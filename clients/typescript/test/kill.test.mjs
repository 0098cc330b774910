// Tests that a run pays once if it is killed at any point and repeated with the same id.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { newAgent, newRun, stack, v1, v2 } from './stack.mjs';

const TIMEOUT_MS = 110_000;
const VICTIM = fileURLToPath(new URL('victim.mjs', import.meta.url));

describe('a run that is killed', { timeout: TIMEOUT_MS }, () => {
  let agent;
  before(async () => {
    agent = await newAgent('victim');
  });

  /** Runs a process. Resolves with the process's output and exit code. */
  const runVictim = (run, url, flow, die = '') =>
    new Promise((resolve) => {
      const env = {
        PATH: process.env.PATH,
        PURSER_URL: stack.base_url,
        PURSER_KEY: agent.key,
        RUN: run,
        URL: url,
        FLOW: flow.split(',')[0],
        DIE: die,
      };
      execFile(process.execPath, [VICTIM], { env, timeout: 30_000 }, (error, stdout, stderr) =>
        resolve({ signal: error?.signal, code: error?.code ?? 0, stderr, ...(stdout && JSON.parse(stdout)) }),
      );
    });

  /** The steps at which the run is killed, each with the result of the second run: the response, or `AlreadyPaid`. */
  const steps = [
    ['ask:after:1', 200],
    ['authorize:before:1', 200],
    ['authorize:after:1', 200],
    ['pay:before:1', 200],
    ['pay:after:1', 'AlreadyPaid'],
    ['complete:before:1', 'AlreadyPaid'],
    ['complete:after:1', 'AlreadyPaid'],
  ];
  const flows = [
    ['fetch, v2', `${v2}/weather`, steps],
    ['sdk, v2', `${v2}/weather`, steps.slice(2, 6)],
    ['fetch, v1', `${v1}/weather`, steps.slice(3, 6)],
  ];
  for (const [flow, url, steps] of flows) {
    for (const [die, outcome] of steps) {
      test(`${flow}, at ${die}`, async () => {
        const spent = await agent.spent();
        const run = newRun();
        assert.equal((await runVictim(run, url, flow, die)).signal, 'SIGKILL');
        const second = await runVictim(run, url, flow);
        assert.equal(second.outcome, outcome, second.stderr);
        if (outcome === 200) assert.equal(second.receipt, 'confirmed');
        assert.equal((await agent.spent()) - spent, 10_000);
      });
    }
  }

  for (const die of [
    'authorize:after:1',
    'approvals:after:1',
    'authorize:before:2',
    'authorize:after:2',
    'pay:before:1',
  ]) {
    test(`for which a person decides, at ${die}`, async () => {
      await agent.limit('lab-search', { require_approval_above_units: 0 });
      const [run, url, spent] = [newRun(), `${v2}/search?q=${die}`, await agent.spent()];
      const ofApproval = /:2$|pay/.test(die);
      if (!ofApproval) assert.equal((await runVictim(run, url, 'fetch', die)).signal, 'SIGKILL');
      const { outcome, approval } = await runVictim(run, url, 'fetch');
      assert.equal(outcome, 'approval_required');
      await agent.approve(approval);
      if (ofApproval) assert.equal((await runVictim(run, url, 'fetch', die)).signal, 'SIGKILL');
      const last = await runVictim(run, url, 'fetch');
      assert.equal(last.outcome, 200, last.stderr);
      assert.equal((await agent.spent()) - spent, 5_000);
    });
  }
});

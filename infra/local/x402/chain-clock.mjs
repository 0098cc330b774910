// Replaces `Date.now()` in this process by the chain's time, because the official facilitator compares a payment's
// validity with `Date.now()`, and tests advance the chain's clock by hours (`evm_increaseTime`). The replaced clock is
// never behind the machine's clock. `new Date()` and timers are unchanged, because the SDK uses neither for validity.

/** Replaces `Date.now` in this process. Returns a function that reads the time of the chain's newest block again. */
export function installChainClock(client) {
  const wallClock = Date.now;
  let aheadMs = 0;
  Date.now = () => wallClock() + aheadMs;

  return async function followChain() {
    const { timestamp } = await client.getBlock({ blockTag: 'latest' });
    aheadMs = Math.max(0, Number(timestamp) * 1000 - wallClock());
  };
}

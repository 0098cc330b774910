// Makes this process live in the chain's time.
//
// Another process may move the chain's clock hours ahead (`evm_increaseTime`), while the official facilitator compares a
// payment's window with `Date.now()`. A real provider and a real chain share one clock; here they share it because
// `Date.now()` is replaced: it runs at the wall clock's pace and is ahead by as much as the newest block was when last
// looked at. It never falls behind the wall clock. `new Date()` and timers are left alone; the SDK asks neither for windows.

/** Replaces `Date.now` once for the whole process and returns the function that looks at the chain again. */
export function installChainClock(client) {
  const wallClock = Date.now;
  let aheadMs = 0;
  Date.now = () => wallClock() + aheadMs;

  return async function followChain() {
    const { timestamp } = await client.getBlock({ blockTag: 'latest' });
    aheadMs = Math.max(0, Number(timestamp) * 1000 - wallClock());
  };
}

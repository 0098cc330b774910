// SPDX-License-Identifier: MIT
pragma solidity ^0.8.20;

/// Makes many calls to one contract in a single transaction, all or none, so that a test can put several transfers into
/// one receipt. The called contract sees this contract as `msg.sender`.
contract Batch {
    function run(address target, bytes[] calldata calls) external {
        for (uint256 i = 0; i < calls.length; ++i) {
            (bool done, bytes memory reason) = target.call(calls[i]);
            if (!done) {
                assembly {
                    revert(add(reason, 0x20), mload(reason))
                }
            }
        }
    }
}

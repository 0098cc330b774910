-- Queries of the archive (docs/archive.md) for DuckDB. tests/evidence/day.py runs all of them.

-- The archive as a view. Replace BUCKET, or the whole address by a folder with a copy of the bucket.
CREATE VIEW statements AS
SELECT * FROM read_json('s3://BUCKET/statements/*/*.jsonl.gz',
  format = 'newline_delimited', hive_partitioning = true, hive_types = {date: DATE},
  columns = {
    log_index: 'UBIGINT', logged_at: 'TIMESTAMP', kind: 'VARCHAR', stated_at: 'TIMESTAMP', transaction_id: 'VARCHAR',
    settlement_id: 'VARCHAR', approval_id: 'VARCHAR', agent_id: 'VARCHAR', key_id: 'VARCHAR', service_id: 'VARCHAR',
    operation_id: 'VARCHAR', network: 'VARCHAR', asset: 'VARCHAR', amount_units: 'UBIGINT', wallet: 'VARCHAR',
    pay_to: 'VARCHAR', result: 'VARCHAR', reason: 'VARCHAR', decision_hash: 'VARCHAR', tx_hash: 'VARCHAR',
    block_number: 'UBIGINT', issuer: 'VARCHAR', statement: 'VARCHAR'
  });

-- What each agent paid, by day.
SELECT date, agent_id, count(*) AS payments, sum(amount_units) / 1e6 AS usdc
FROM statements WHERE kind = 'receipt' GROUP BY ALL ORDER BY ALL;

-- Decisions by result.
SELECT result, reason, count(*) AS decisions, sum(amount_units) / 1e6 AS usdc
FROM statements WHERE kind = 'decision' GROUP BY ALL ORDER BY decisions DESC, reason;

-- Allowed payments without a receipt.
SELECT decision.settlement_id, decision.stated_at, decision.amount_units
FROM statements AS decision
ANTI JOIN statements AS receipt ON receipt.kind = 'receipt' AND receipt.settlement_id = decision.settlement_id
WHERE decision.kind = 'decision' AND decision.result = 'allow' ORDER BY decision.log_index;

-- Whether each leaf of the log is archived once.
SELECT count(*) AS entries, count(DISTINCT log_index) AS distinct_entries, max(log_index) + 1 AS size FROM statements;

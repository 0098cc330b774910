-- The table of the archive (docs/archive.md) in Athena, and a query. Replace BUCKET; `from_iso8601_timestamp(stated_at)` is the time.
-- No test runs these.

CREATE EXTERNAL TABLE statements (
  log_index bigint, logged_at string, kind string, stated_at string, transaction_id string, settlement_id string,
  approval_id string, agent_id string, key_id string, service_id string, operation_id string, network string,
  asset string, amount_units bigint, wallet string, pay_to string, result string, reason string, decision_hash string,
  tx_hash string, block_number bigint, issuer string, statement string)
PARTITIONED BY (`date` string)
ROW FORMAT SERDE 'org.openx.data.jsonserde.JsonSerDe'
LOCATION 's3://BUCKET/statements/'
TBLPROPERTIES (
  'projection.enabled' = 'true', 'projection.date.type' = 'date', 'projection.date.format' = 'yyyy-MM-dd',
  'projection.date.range' = '2026-01-01,NOW', 'storage.location.template' = 's3://BUCKET/statements/date=${date}/');

SELECT agent_id, count(*) AS payments, sum(amount_units) / 1e6 AS usdc
FROM statements WHERE "date" BETWEEN '2026-11-01' AND '2026-11-30' AND kind = 'receipt' GROUP BY agent_id;

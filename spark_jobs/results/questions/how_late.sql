-- How late were deliveries, by target, hour or minute?
-- :by=target target, minute, or hour (together with the length of the delay)
-- due_from_ms: the start of the hour or minute of the due. delay: the requested time between
-- writing and due.
WITH delivered AS (
  SELECT target, due_ms, lateness_ms, due_ms - timestamp_ms AS delay_ms,
    CASE :by WHEN 'target' THEN NULL WHEN 'hour' THEN 3600000 WHEN 'minute' THEN 60000
      ELSE raise_error('by is target, hour or minute') END AS step_ms
  FROM newest
  WHERE lateness_ms IS NOT NULL
), placed AS (
  SELECT target, lateness_ms, delay_ms, due_ms - pmod(due_ms, step_ms) AS due_from_ms,
    CASE WHEN :by != 'hour' THEN NULL
      WHEN delay_ms <= 0 THEN 'at once'
      WHEN delay_ms <= 1000 THEN 'up to 1 s'
      WHEN delay_ms <= 60000 THEN 'up to 1 min'
      WHEN delay_ms <= 600000 THEN 'up to 10 min'
      WHEN delay_ms <= 3600000 THEN 'up to 1 h'
      WHEN delay_ms <= 86400000 THEN 'up to 1 day'
      ELSE 'longer' END AS delay
  FROM delivered
)
SELECT target, due_from_ms, delay, count(*) AS records,
  percentile_approx(lateness_ms, 0.5) AS p50_ms, percentile_approx(lateness_ms, 0.99) AS p99_ms,
  max(lateness_ms) AS max_ms
FROM placed
GROUP BY target, due_from_ms, delay
ORDER BY target, due_from_ms, min(delay_ms)

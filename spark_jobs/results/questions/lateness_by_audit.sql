-- How did lateness change from audit to audit?
-- :late_ms=60000 records later than this many milliseconds count as late
-- Counts the deliveries that each audit in the folder judged, by target. If an audit continued
-- another one, these are the new deliveries.
SELECT verdicts.audit, audit_at_ms, target, count(*) AS records,
  percentile_approx(lateness_ms, 0.5) AS p50_ms, percentile_approx(lateness_ms, 0.99) AS p99_ms,
  max(lateness_ms) AS max_ms, count_if(lateness_ms > CAST(:late_ms AS BIGINT)) AS late
FROM verdicts
WHERE verdict IN ('delivered', 'late')
GROUP BY verdicts.audit, audit_at_ms, target
ORDER BY verdicts.audit, target

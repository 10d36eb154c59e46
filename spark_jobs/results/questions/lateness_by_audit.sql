-- How did lateness change from audit to audit?
-- :late_ms=60000 what is later than so many milliseconds counts as late
-- Of each audit in the place, by target: the deliveries that it judged. In a chain these are the
-- new ones.
SELECT verdicts.audit, audit_at_ms, target, count(*) AS records,
  percentile_approx(lateness_ms, 0.5) AS p50_ms, percentile_approx(lateness_ms, 0.99) AS p99_ms,
  max(lateness_ms) AS max_ms, count_if(lateness_ms > CAST(:late_ms AS BIGINT)) AS late
FROM verdicts
WHERE verdict IN ('delivered', 'late')
GROUP BY verdicts.audit, audit_at_ms, target
ORDER BY verdicts.audit, target

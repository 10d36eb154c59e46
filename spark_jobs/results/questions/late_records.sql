-- Which records were later than a minute?
-- :late_ms=60000 later than so many milliseconds
-- By the hour of their due and target, the latest first. Without delivered_ms it had not come when
-- it was audited last, and late_ms counts up to then.
SELECT due_ms - pmod(due_ms, 3600000) AS hour_ms, target, partition, offset, id, verdict,
  due_ms, delivered_ms, coalesce(lateness_ms, overdue_ms) AS late_ms
FROM newest
WHERE coalesce(lateness_ms, overdue_ms) > CAST(:late_ms AS BIGINT)
ORDER BY hour_ms, target, late_ms DESC, partition, offset

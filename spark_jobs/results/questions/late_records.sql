-- Which records were later than a minute?
-- :late_ms=60000 records later than this many milliseconds count as late
-- Sorted by the hour of the due and target, the latest record first. A record without delivered_ms
-- had not ended in the last audit. Its late_ms is the time from its due to that audit.
SELECT due_ms - pmod(due_ms, 3600000) AS hour_ms, target, partition, offset, id, verdict,
  due_ms, delivered_ms, coalesce(lateness_ms, overdue_ms) AS late_ms
FROM newest
WHERE coalesce(lateness_ms, overdue_ms) > CAST(:late_ms AS BIGINT)
ORDER BY hour_ms, target, late_ms DESC, partition, offset

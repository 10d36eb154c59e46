-- In which hours were deliveries later than a minute, and to which targets?
-- :late_ms=60000 records later than this many milliseconds count as late
-- delivered: delivered records that were due in this hour. late: late records among them.
-- overdue: records that are overdue by more than late_ms, and had not ended in the last audit.
WITH timed AS (
  SELECT target, due_ms - pmod(due_ms, 3600000) AS hour_ms, lateness_ms, overdue_ms,
    lateness_ms > CAST(:late_ms AS BIGINT) AS is_late,
    overdue_ms > CAST(:late_ms AS BIGINT) AS is_overdue
  FROM newest
)
SELECT hour_ms, target, count(lateness_ms) AS delivered, count_if(is_late) AS late,
  count_if(is_overdue) AS overdue, greatest(max(lateness_ms), max(overdue_ms)) AS longest_ms
FROM timed
GROUP BY hour_ms, target
HAVING late + overdue > 0
ORDER BY hour_ms, target

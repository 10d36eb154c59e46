-- What waits still and becomes due today, by hour and target?
-- :day= the day (UTC), such as 2026-11-25; today if none is given
-- What was due before that day and has not ended counts in its first hour, and in due_before.
-- half_messages go out only if they are committed.
WITH day AS (
  SELECT unix_millis(CAST(coalesce(CAST(:day AS DATE), current_date()) AS TIMESTAMP)) AS start_ms
), waiting AS (
  SELECT target, kind, due_ms, start_ms, greatest(due_ms, start_ms) AS from_ms
  FROM newest CROSS JOIN day
  WHERE verdict IN ('pending', 'overdue') AND kind IN ('record', 'prepare')
    AND due_ms < start_ms + 86400000
)
SELECT from_ms - pmod(from_ms, 3600000) AS hour_ms, target, count(*) AS records,
  count_if(kind = 'prepare') AS half_messages, count_if(due_ms < start_ms) AS due_before
FROM waiting
GROUP BY hour_ms, target
ORDER BY hour_ms, target

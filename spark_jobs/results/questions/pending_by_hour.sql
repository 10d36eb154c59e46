-- How many records are pending, by the hour of their due?
-- :day= the first day (UTC), such as 2026-11-25; the current hour if none is given
-- :hours=24 the number of hours to list
-- Records due after the last listed hour are counted in one row without hour_ms. Records due before
-- the first hour are counted in its row, and again in due_before. half_messages: delivered only if
-- their producer commits.
WITH span AS (
  SELECT unix_millis(coalesce(CAST(CAST(:day AS DATE) AS TIMESTAMP),
    date_trunc('HOUR', current_timestamp()))) AS start_ms
), pending AS (
  SELECT target, kind, due_ms < start_ms AS is_before,
    IF(due_ms < start_ms + 3600000 * CAST(:hours AS BIGINT),
      greatest(due_ms, start_ms), NULL) AS from_ms
  FROM newest CROSS JOIN span
  WHERE verdict IN ('pending', 'overdue') AND kind IN ('record', 'prepare')
)
SELECT from_ms - pmod(from_ms, 3600000) AS hour_ms, target, count(*) AS records,
  count_if(kind = 'prepare') AS half_messages, count_if(is_before) AS due_before
FROM pending
GROUP BY hour_ms, target
ORDER BY hour_ms NULLS LAST, target

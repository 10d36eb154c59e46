-- Do the books balance? Requests and their ends, by target and day of the due.
-- :day= a day (UTC), such as 2026-11-25; all days if none is given
-- asked: the number of requests. A record with successors counts once, and ends as its last
-- successor ended. The columns from delivered to broken count these ends.
-- unaccounted: requests without an end in these columns. It must be 0. Otherwise a successor was
-- not audited, or it has another target or day, which is a violation.
-- broken: violations, without records that are only late. It must be 0.
-- unasked: deliveries that no record asked for. It must be 0.
-- A move to another time counts as a new request, and the moved record as replaced. A successor of
-- a violation counts as a new request, too. A move that came too late does not count.
-- A request without a due counts on the day of its writing, an unasked delivery on the day of its
-- arrival. Deleted ingress records and records with unknown settings count only in not_judged.
WITH gone_on AS (
  SELECT DISTINCT partition, next_offset AS offset, true AS is_successor
  FROM newest
  WHERE verdict IN ('rolled', 'requeued') AND next_offset IS NOT NULL
), records AS (
  SELECT target, verdict, is_violation, verdict = 'orphaned' AS is_unasked,
    coalesce(is_successor, false) AS is_successor,
    date_format(
      timestamp_millis(least(coalesce(due_ms, timestamp_ms, ended_ms), 253402300799999)),
      'yyyy-MM-dd'
    ) AS day
  FROM newest LEFT JOIN gone_on USING (partition, offset)
  WHERE (kind IN ('record', 'prepare', 'refused') AND verdict != 'missed') OR verdict = 'orphaned'
), counted AS (
  SELECT target, day,
    count_if(NOT is_successor AND NOT is_unasked) AS asked,
    count_if(verdict IN ('delivered', 'late')) AS delivered,
    count_if(verdict = 'cancelled') AS cancelled,
    count_if(verdict = 'replaced') AS replaced,
    count_if(verdict = 'dead_lettered') AS dead_lettered,
    count_if(verdict = 'rolled_back') AS rolled_back,
    count_if(verdict = 'expired') AS expired,
    count_if(verdict IN ('pending', 'overdue')) AS pending,
    count_if(verdict = 'unverifiable') AS not_judged,
    count_if(is_violation AND NOT is_unasked AND verdict NOT IN ('late', 'overdue')) AS broken,
    count_if(is_unasked) AS unasked
  FROM records
  WHERE :day IS NULL OR day = :day
  GROUP BY target, day
)
SELECT *, asked - delivered - cancelled - replaced - dead_lettered - rolled_back - expired
  - pending - not_judged - broken AS unaccounted
FROM counted
ORDER BY target, day

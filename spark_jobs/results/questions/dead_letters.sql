-- Which records were dead-lettered, by reason and target?
-- reason: the code in timer-error. first: the oldest ingress record, as partition/offset.
WITH letters AS (
  SELECT substring_index(detail, ':', 1) AS reason, target, partition, offset, ended_ms
  FROM newest
  WHERE verdict = 'dead_lettered'
)
SELECT reason, target, count(*) AS records, min(ended_ms) AS first_ms, max(ended_ms) AS last_ms,
  min_by(concat(partition, '/', offset), struct(ended_ms, partition, offset)) AS first
FROM letters
GROUP BY reason, target
ORDER BY records DESC, reason, target

-- Which records could not be judged, and why?
-- Counts three kinds of records by reason and target: records whose end cannot be judged, records
-- that are due and have not ended, and ingress records that retention deleted before an audit read
-- them. For deleted records, offsets are counted.
WITH unsure AS (
  SELECT target, due_ms, CASE
    WHEN verdict = 'unverifiable' AND detail != 'the ingress has deleted the record' THEN detail
    WHEN verdict = 'pending' AND detail LIKE 'a transaction is open in%' THEN detail
    WHEN verdict = 'pending' AND is_late THEN 'it is due, and has not ended' END AS reason
  FROM newest
), deleted AS (
  SELECT explode(from_json(get_json_object(summary, '$.unverifiable'),
    'array<struct<partition:int, start:bigint, end:bigint>>')) AS span
  FROM chain
)
SELECT reason, target, count(*) AS records, min(due_ms) AS first_ms, max(due_ms) AS last_ms
FROM unsure
WHERE reason IS NOT NULL
GROUP BY reason, target
UNION ALL
SELECT concat('the ingress had deleted partition ', span.partition, ', offsets ', span.start,
  ' to ', span.end - 1), NULL, span.end - span.start, NULL, NULL
FROM deleted
ORDER BY records DESC, reason, target

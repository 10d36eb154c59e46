-- Which records got another verdict after an audit had closed them?
-- Compares all audits in the folder that read the same ingress topic. It does not matter whether
-- they continue each other. The end of a pending or overdue record is no change. If a delivered
-- record is duplicated now, that is a change.
WITH given AS (
  SELECT get_json_object(audits.summary, '$.ingress') AS ingress, verdicts.*
  FROM verdicts JOIN audits ON verdicts.audit = audits.audit
), followed AS (
  SELECT *, lag(verdict) OVER record AS before, lag(audit) OVER record AS before_audit
  FROM given
  WINDOW record AS (PARTITION BY ingress, partition, offset ORDER BY audit)
)
SELECT partition, offset, id, target, before, before_audit, verdict, is_violation, detail, audit
FROM followed
WHERE verdict != before AND before NOT IN ('pending', 'overdue')
ORDER BY audit, partition, offset

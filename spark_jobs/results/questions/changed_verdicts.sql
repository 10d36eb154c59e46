-- Which records got another verdict after an audit had closed them?
-- Of all audits in the place, chain or not, that read the same ingress topic. What was pending (or
-- overdue) and ended is no change; what was delivered and is duplicated now is one.
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

-- Which records were cancelled or replaced, by which record, and how long before they were due?
-- The topics do not know users. To find out who did it, look at the ingress record ended_by,
-- written at asked_ms. by: its kind (cancel, record, prepare); null if no audit of the chain knows
-- it.
SELECT taken.partition, taken.offset, taken.id, taken.target, taken.due_ms, taken.verdict,
  taken.ended_by, other.kind AS by, other.timestamp_ms AS asked_ms,
  taken.due_ms - other.timestamp_ms AS ahead_ms
FROM newest AS taken LEFT JOIN newest AS other
  ON other.partition = taken.partition AND other.offset = taken.ended_by
WHERE taken.verdict IN ('cancelled', 'replaced')
ORDER BY taken.partition, taken.offset

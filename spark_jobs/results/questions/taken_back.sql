-- Which records were cancelled or replaced, by which record, and how long before they were due?
-- ended_by: the offset of the record that cancelled or replaced the record. asked_ms: when that one
-- was written. by: its kind (cancel, record, prepare), null if no audit of the chain has read it.
-- The topics do not name users. To find out who did it, look at the content of that record.
SELECT taken.partition, taken.offset, taken.id, taken.target, taken.due_ms, taken.verdict,
  taken.ended_by, other.kind AS by, other.timestamp_ms AS asked_ms,
  taken.due_ms - other.timestamp_ms AS ahead_ms
FROM newest AS taken LEFT JOIN newest AS other
  ON other.partition = taken.partition AND other.offset = taken.ended_by
WHERE taken.verdict IN ('cancelled', 'replaced')
ORDER BY taken.partition, taken.offset

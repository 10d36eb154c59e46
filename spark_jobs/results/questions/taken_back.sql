-- Which records were cancelled or replaced, by which record, and how long before they were due?
-- ended_by: the offset of the record that cancelled or replaced the record. asked_ms: when that
-- other record was written. by: the kind of the other record (cancel, record, prepare), null if no
-- audit of the chain has read it. The topics do not name users. To find out who cancelled or
-- replaced a record, look at the content of the other record.
SELECT taken.partition, taken.offset, taken.id, taken.target, taken.due_ms, taken.verdict,
  taken.ended_by, other.kind AS by, other.timestamp_ms AS asked_ms,
  taken.due_ms - other.timestamp_ms AS ahead_ms
FROM newest AS taken LEFT JOIN newest AS other
  ON other.partition = taken.partition AND other.offset = taken.ended_by
WHERE taken.verdict IN ('cancelled', 'replaced')
ORDER BY taken.partition, taken.offset

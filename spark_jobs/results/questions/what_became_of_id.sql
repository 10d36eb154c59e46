-- How did order 17 end, by its id?
-- :id the id (timer-id); in hexadecimal if it is not text
-- Lists all records with the id: replacements, successors, cancels, decisions, and other orders if
-- they used the same id.
SELECT partition, offset, kind, verdict, detail, target, timestamp_ms, due_ms, ended_ms,
  at_topic, at_partition, at_offset, next_offset, ended_by, audit
FROM newest
WHERE id = :id
ORDER BY partition, offset

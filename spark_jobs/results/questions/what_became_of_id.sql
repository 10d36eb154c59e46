-- How did order 17 end, by its id?
-- :id the id (timer-id); in hexadecimal where it is no text
-- All that has the id: records that replaced it or went on from it, cancels and decisions, and
-- other records if the id was used again. A record that waits has the verdict pending.
SELECT partition, offset, kind, verdict, detail, target, timestamp_ms, due_ms, ended_ms,
  at_topic, at_partition, at_offset, next_offset, ended_by, audit
FROM newest
WHERE id = :id
ORDER BY partition, offset

-- Which records are violations, and which commands show them?
-- :verdict= one violation, such as duplicated; all if none is given
-- A violation is left out if a later audit of the chain gave its record another verdict.
SELECT verdict, partition, offset, detail, id, target, due_ms, delivered_ms, audit, look
FROM violations AS found LEFT SEMI JOIN newest
  ON newest.audit = found.audit
    AND newest.partition <=> found.partition AND newest.offset <=> found.offset
    AND newest.at_topic <=> found.at_topic AND newest.at_partition <=> found.at_partition
    AND newest.at_offset <=> found.at_offset
WHERE :verdict IS NULL OR verdict = :verdict
ORDER BY verdict, partition, offset, look

-- How did the ingress record at this partition and offset end?
-- :partition its partition
-- :offset its offset; a delivery names both in timer-origin
-- Lists the record with all its predecessors and successors. For a record without an id that was
-- moved, name the offset that it has after the move.
WITH asked AS (
  SELECT partition, offset, id, target, due_ms
  FROM newest
  WHERE partition = CAST(:partition AS INT) AND offset = CAST(:offset AS BIGINT)
), steps AS (
  -- A successor has a higher offset, so one pass over the steps in order of offset finds the
  -- successors. One in reverse order finds the predecessors. Steps are taken from violations, from
  -- moved records, and from records with the same id, or the same target and due.
  SELECT asked.partition, asked.offset, array_sort(collect_list(
    named_struct('offset', step.offset, 'next_offset', step.next_offset))) AS steps
  FROM asked LEFT JOIN newest AS step
    ON step.partition = asked.partition AND step.next_offset > step.offset
      AND (step.id = asked.id OR (step.target = asked.target
          AND (step.due_ms = asked.due_ms OR step.detail = 'moved'))
        OR step.is_violation)
  GROUP BY asked.partition, asked.offset
), linked AS (
  SELECT partition, array_union(
    aggregate(steps, array(offset), (found, step) -> IF(
      array_contains(found, step.offset), array_append(found, step.next_offset), found)),
    aggregate(reverse(steps), array(offset), (found, step) -> IF(
      array_contains(found, step.next_offset), array_append(found, step.offset), found))
  ) AS offsets
  FROM steps
)
SELECT newest.partition, offset, kind, verdict, detail, id, target, timestamp_ms, due_ms, ended_ms,
  at_topic, at_partition, at_offset, next_offset, ended_by, audit
FROM newest JOIN linked
  ON newest.partition = linked.partition AND array_contains(offsets, offset)
ORDER BY offset

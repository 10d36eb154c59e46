-- Which cancels found nothing, and how had their record ended?
-- record_offset: the last record with the cancel's id that was written before the cancel in the
-- same partition. after_ms: the time from the end of that record to the cancel. elsewhere: the
-- number of records with the id in other partitions. A cancel finds a record only in its own
-- partition, so record and cancel need the same key.
WITH found AS (
  SELECT missed.partition, missed.offset, missed.id, missed.timestamp_ms AS asked_ms,
    max(named_struct('offset', record.offset, 'verdict', record.verdict,
      'due_ms', record.due_ms, 'ended_ms', record.ended_ms))
      FILTER (WHERE record.partition = missed.partition AND record.offset < missed.offset) AS last,
    count_if(record.partition != missed.partition) AS elsewhere
  FROM newest AS missed LEFT JOIN newest AS record
    ON record.id = missed.id AND record.kind IN ('record', 'prepare')
  WHERE missed.kind = 'cancel' AND missed.verdict = 'missed'
  GROUP BY missed.partition, missed.offset, missed.id, missed.timestamp_ms
)
SELECT partition, offset, id, asked_ms, last.offset AS record_offset, last.verdict, last.due_ms,
  last.ended_ms, asked_ms - last.ended_ms AS after_ms, elsewhere
FROM found
ORDER BY partition, offset

-- Which ends have a time that only the proxy claims?
-- Counts by topic. attested: ends with the broker's time, because the topic has LogAppendTime.
-- claimed: ends with the time that the proxy wrote. first_ms, last_ms: the first and last claimed
-- time.
SELECT at_topic, count(*) AS records, count_if(is_attested) AS attested,
  count_if(NOT is_attested) AS claimed,
  min(ended_ms) FILTER (WHERE NOT is_attested) AS first_ms,
  max(ended_ms) FILTER (WHERE NOT is_attested) AS last_ms
FROM newest
WHERE is_attested IS NOT NULL
GROUP BY at_topic
ORDER BY claimed DESC, at_topic

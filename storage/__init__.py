"""The engine: a timer wheel, a timer log and body files behind one `Store` protocol (DESIGN 7).

Knows neither Kafka nor clocks nor threads: it is handed times, batches and a folder.
"""

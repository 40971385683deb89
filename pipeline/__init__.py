"""PySpark jobs around exactly-once delivery. The only room that imports pyspark."""

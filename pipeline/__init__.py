"""The sink and the jobs for Spark. The only room that imports pyspark."""

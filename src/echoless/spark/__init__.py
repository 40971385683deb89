"""The jobs of Spark, and what a program of PySpark uses."""

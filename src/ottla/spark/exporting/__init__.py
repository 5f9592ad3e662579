"""Topics to Parquet files and back, without a row in the JVM."""

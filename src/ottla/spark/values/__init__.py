"""Values that hold JSON or Avro become typed columns."""

"""How a test's own process begins a Spark Connect server and is its client: ``spark``.

Put before the process's code, run by ``python -c``. Spark's local mode binds the fixed port 15002:
here the system chooses one, so that two such tests do not meet.
"""

BEGIN = """
import ottla.spark.local as local
local.set_environment()
from pyspark.sql import SparkSession
from pyspark.sql.connect.client.core import DefaultChannelBuilder
from pyspark.sql.session import SparkSession as ClassicSession

def port_of_the_server():
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    jvm = ClassicSession._instantiatedSession._jvm
    return getattr(getattr(jvm, service), "MODULE$").localPort()

DefaultChannelBuilder.default_port = staticmethod(port_of_the_server)
builder = SparkSession.builder.remote("local[1]").appName("tests")
confs = {"spark.driver.memory": "1g", "spark.connect.grpc.binding.port": "0"}
for key, value in {**local.local_confs("local[1]", "off"), **confs}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
import ottla.spark
ottla.spark.register(spark)
"""

COPY_TWICE = (
    BEGIN
    + """
import os, sys
bootstrap, topic, name, work, way = sys.argv[1:]

def write(frame, number):
    import os
    import ottla.spark
    if way != "plain":
        ottla.spark.write_batch(frame, number, name=name, bootstrap=bootstrap, topic=topic)
    else:
        frame.write.format("ottla").mode("append").option(
            "kafka.bootstrap.servers", bootstrap
        ).options(**{"topic": topic, "delivery": "exactly-once", "transactional.id": name}).save()
    if not os.path.exists(f"{work}/flag"):
        open(f"{work}/flag", "w").close()
        raise RuntimeError("killed after the write")

for _ in range(2):
    try:
        query = (
            spark.readStream.text(f"{work}/lines").writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{work}/checkpoint").trigger(availableNow=True).start()
        )
        query.awaitTermination(60)
        error = query.exception()
    except Exception as raised:
        error = raised
    print("ended:", "fine" if error is None else str(error), flush=True)
    sys.stdin.readline()
spark.stop()
"""
)
"""Copy a directory's lines into a topic by ``foreachBatch``, twice, killed behind the first write.

Arguments: broker, topic, name of the stream, a directory, and the way: ``plain`` by ``save``, else
by ``write_batch``. Prints ``ended: ...`` after each try and waits for a line.
"""

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

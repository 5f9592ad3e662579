"""Each query of a frame plans anew, as with Spark's Kafka connector: it sees what the topics hold.

Spark 4.2 and 4.3 keep one plan for each loaded relation of a source in Python: a frame that was
counted before ten records came gives the old count for ever. Here an optimizer rule gives each
query's scans a plan of their own (one for those of the same frame in one query). The rule is a
class of Java, which Spark's own compiler makes in the running JVM: no JAR. The driver's side of a
classic session; knows nothing of topics.

Source: ``PythonScan`` and ``PythonDataSourceV2`` of Spark 4.3, whose private fields it sets.
"""

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("ottla.spark")
PACKAGE = "org.apache.spark.sql.execution.datasources.v2.python"
NAME = "OttlaFreshPlans"
RULE = """
package org.apache.spark.sql.execution.datasources.v2.python;

import java.lang.reflect.Field;
import java.util.IdentityHashMap;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

public class OttlaFreshPlans extends org.apache.spark.sql.catalyst.rules.Rule {
  private final Field source;
  private final Field creation;
  private final Field name;

  public OttlaFreshPlans() throws ReflectiveOperationException {
    source = PythonScan.class.getDeclaredField("ds");
    creation = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
    name = PythonDataSourceV2.class.getDeclaredField("name");
    PythonDataSourceV2.class.getDeclaredField("readInfo");
    source.setAccessible(true);
    creation.setAccessible(true);
    name.setAccessible(true);
  }

  public TreeNode apply(TreeNode plan) {
    try {
      visit(plan, new IdentityHashMap());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
    return plan;
  }

  private void visit(TreeNode node, IdentityHashMap made) throws ReflectiveOperationException {
    if (node instanceof DataSourceV2ScanRelation) {
      Object scan = ((DataSourceV2ScanRelation) node).scan();
      if (scan instanceof PythonScan) {
        renew((PythonScan) scan, made);
      }
    }
    scala.collection.Iterator children = node.children().iterator();
    while (children.hasNext()) {
      visit((TreeNode) children.next(), made);
    }
  }

  private void renew(PythonScan scan, IdentityHashMap made) throws ReflectiveOperationException {
    Object shared = source.get(scan);
    if (!"ottla".equalsIgnoreCase((String) name.get(shared))) {
      return;
    }
    PythonDataSourceV2 own = (PythonDataSourceV2) made.get(shared);
    if (own == null) {
      own = new PythonDataSourceV2();
      own.setShortName((String) name.get(shared));
      creation.set(own, creation.get(shared));
      made.put(shared, own);
      made.put(own, own);
    }
    source.set(scan, own);
  }
}
"""


def plan_each_query_anew(spark: "SparkSession") -> bool:
    """Have each query of ``spark`` plan its topics anew; tell whether it does. Harmless twice.

    False, with a warning in the log, where Spark is another than this knows: then a frame keeps
    the offsets of its first query.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return True  # Spark Connect analyses each query anew
    java_session = spark._jsparkSession  # noqa: SLF001
    try:
        experimental = java_session.experimental()
        rules = jvm.java.util.ArrayList()
        there = experimental.extraOptimizations()
        for index in range(there.size()):
            rule = there.apply(index)
            if rule.getClass().getSimpleName() == NAME:
                return True
            rules.add(rule)
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(java_session.getClass().getClassLoader())
        compiler.cook(RULE)
        (constructor,) = (
            compiler.getClassLoader().loadClass(f"{PACKAGE}.{NAME}").getDeclaredConstructors()
        )
        kind = jvm.java.lang.Class.forName("java.lang.Object")
        nothing = jvm.java.lang.reflect.Array.newInstance(kind, 0)
        rules.add(constructor.newInstance(nothing))
        as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala(rules).toSeq()
        getattr(experimental, "extraOptimizations_$eq")(as_scala)
    except Py4JError as error:
        LOG.warning("a DataFrame keeps the offsets of its first query: load it anew (%s)", error)
        return False
    return True

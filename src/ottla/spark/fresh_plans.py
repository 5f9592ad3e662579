"""Each query of a frame plans anew, as with Spark's Kafka connector: it sees what the topics hold.

Spark 4.2 and 4.3 keep one plan for each loaded relation of a source in Python: a frame that was
counted before ten records came gives the old count for ever. An optimizer rule gives the scans
of each query a plan of their own (scans of one frame in one query share it). The rule is a
class of Java, made in the running JVM by the compiler that Spark brings: no JAR. Clients of Connect
have no JVM: they tell the server not to keep plans, which helps all frames but views. This module
runs in the driver and knows nothing of topics.

Source: ``PythonScan`` and ``PythonDataSourceV2`` of Spark 4.3, whose private fields it sets.
"""

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = logging.getLogger("ottla.spark")
PACKAGE = "org.apache.spark.sql.execution.datasources.v2.python"
NAME = "OttlaFreshPlans"
KEPT_BY_CONNECT = "spark.connect.session.planCache.enabled"
"""A server of Spark Connect keeps the plans that it has analysed, and with them their offsets."""
RULE = """
package org.apache.spark.sql.execution.datasources.v2.python;

import java.lang.reflect.Field;
import java.util.Collections;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.WeakHashMap;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;

public class OttlaFreshPlans extends org.apache.spark.sql.catalyst.rules.Rule {
  private final Field scanned;
  private final Field creation;
  private final Field name;
  private final Field source;
  private final Field hasSource;

  // From a source that was made here to the frame's. Subqueries are optimized before the query
  // that they are in: their scans have sources of their own by then.
  private final Map frames = Collections.synchronizedMap(new WeakHashMap());

  public OttlaFreshPlans() throws ReflectiveOperationException {
    scanned = PythonScan.class.getDeclaredField("ds");
    creation = PythonDataSourceV2.class.getDeclaredField("dataSourceInPython");
    name = PythonDataSourceV2.class.getDeclaredField("name");
    source = PythonDataSourceV2.class.getDeclaredField("source");
    hasSource = PythonDataSourceV2.class.getDeclaredField("bitmap$0");
    PythonDataSourceV2.class.getDeclaredField("readInfo");
    scanned.setAccessible(true);
    creation.setAccessible(true);
    name.setAccessible(true);
    source.setAccessible(true);
    hasSource.setAccessible(true);
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
    visitAll(node.children(), made);
    if (node instanceof LogicalPlan) {
      visitAll(((LogicalPlan) node).subqueries(), made);
    }
  }

  private void visitAll(scala.collection.Iterable nodes, IdentityHashMap made)
      throws ReflectiveOperationException {
    scala.collection.Iterator left = nodes.iterator();
    while (left.hasNext()) {
      visit((TreeNode) left.next(), made);
    }
  }

  private void renew(PythonScan scan, IdentityHashMap made) throws ReflectiveOperationException {
    Object there = scanned.get(scan);
    if (!"ottla".equalsIgnoreCase((String) name.get(there))) {
      return;
    }
    Object frame = frames.get(there);
    if (frame == null) {
      frame = there;
    }
    PythonDataSourceV2 own = (PythonDataSourceV2) made.get(frame);
    if (own == null) {
      own = new PythonDataSourceV2();
      own.setShortName((String) name.get(frame));
      creation.set(own, creation.get(frame));
      if (hasSource.getBoolean(frame)) {  // else it is looked for in the session that is active
        source.set(own, source.get(frame));
        hasSource.setBoolean(own, true);
      }
      frames.put(own, frame);
      made.put(frame, own);
    }
    scanned.set(scan, own);
  }
}
"""


def plan_each_query_anew(spark: "SparkSession") -> bool:
    """Have each query of ``spark`` plan its topics anew; tell whether it does. Harmless twice.

    Of this session only, and of those that Spark clones from it for streams; not of
    ``newSession()``. Over Spark Connect temporary views still keep the offsets they had first.
    False, with a warning in the log, where Spark is another than this knows: then a frame keeps
    the offsets of its first query.
    """
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        if getattr(spark, "_jvm", None) is None:
            spark.conf.set(KEPT_BY_CONNECT, "false")
        else:
            _add_rule(spark)
    # No such class, field, method or setting.
    except (Py4JError, PySparkException, TypeError, AttributeError, ValueError) as error:
        LOG.warning("a DataFrame keeps the offsets of its first query: load it anew (%s)", error)
        return False
    return True


def _add_rule(spark: "SparkSession") -> None:
    """Add the rule to those of the session, if it is not there. Raises what Spark's classes do."""
    jvm: Any = spark._jvm  # noqa: SLF001
    java_session = spark._jsparkSession  # noqa: SLF001
    experimental = java_session.experimental()
    rules = jvm.java.util.ArrayList()
    there = experimental.extraOptimizations()
    for index in range(there.size()):
        rule = there.apply(index)
        if rule.getClass().getSimpleName() == NAME:
            return
        rules.add(rule)
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(java_session.getClass().getClassLoader())
    compiler.cook(RULE)
    made = compiler.getClassLoader().loadClass(f"{PACKAGE}.{NAME}")
    (constructor,) = made.getDeclaredConstructors()
    kind = jvm.java.lang.Class.forName("java.lang.Object")
    nothing = jvm.java.lang.reflect.Array.newInstance(kind, 0)
    rules.add(constructor.newInstance(nothing))
    as_scala = jvm.scala.jdk.javaapi.CollectionConverters.asScala(rules).toSeq()
    getattr(experimental, "extraOptimizations_$eq")(as_scala)

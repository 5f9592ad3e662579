"""Build the eleven extensions where a C compiler is at hand.

They are loops over records, one over syncs, and the meter of quotas.

Everything else is declared in pyproject.toml. The extension comes from the very .py file that is
installed beside it: whoever cannot build it gets the same results from the interpreted form.
In place, for development: `python setup.py build_ext --inplace`.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

extensions = cythonize(
    [
        Extension(
            f"ottla.{name}",
            [f"src/ottla/{name.replace('.', '/')}.py"],
            extra_compile_args=["-g0"],  # without symbols it is a fifth of the size
        )
        for name in (
            *("records.kernels", "records.batch_walk", "records.time_search", "records.cleaning"),
            "records.rows",
            *("records.columnar.columns", "records.columnar.writer"),
            *("records.columnar.avro", "records.columnar.row_sums", "env.sync_loop", "quota.meter"),
        )
    ],
    build_dir="build",  # the generated C stays out of the sources
)
for extension in extensions:
    extension.optional = True  # set here: cythonize does not pass it on

setup(ext_modules=extensions)

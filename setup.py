"""Build the one extension, `ottla.records.kernels`, where a C compiler is at hand.

Everything else is declared in pyproject.toml. The extension comes from the very .py file that is
installed beside it: whoever cannot build it gets the same results from the interpreted form.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

kernels = Extension("ottla.records.kernels", ["src/ottla/records/kernels.py"], optional=True)

setup(ext_modules=cythonize([kernels], build_dir="build"))

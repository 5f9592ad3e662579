"""The answer as a picture: airlines down, hours across, minutes of delay as colour."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")  # a file, no window

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import Normalize

INK = "#222222"
MINUTES_MAX = 40.0
"""Beyond this all delays look alike; tiny carriers reach 100."""
FEW_FLIGHTS = 30
"""A mean over fewer flights is set in italics: it tells little."""


def draw(table: pd.DataFrame, names: dict[str, str], path: Path) -> None:
    """Write the picture of mean delays per carrier and hour to ``path`` (PNG)."""
    weighted = table.assign(total=table["mean_arr_delay"] * table["flights"])
    by_carrier = weighted.groupby("carrier")[["total", "flights"]].sum()
    order = (by_carrier["total"] / by_carrier["flights"]).sort_values(ascending=False).index
    minutes = table.pivot_table("mean_arr_delay", "carrier", "hour").reindex(order)
    counts = table.pivot_table("flights", "carrier", "hour").reindex(order)
    labels = [f"{names.get(carrier, carrier)}  {carrier}" for carrier in order]

    figure, (left, right) = plt.subplots(
        1, 2, figsize=(14, 8), width_ratios=(5, 1), layout="constrained"
    )
    _draw_minutes(left, minutes, counts, labels)
    _draw_counts(right, by_carrier["flights"].reindex(order).to_numpy())
    total = int(table["flights"].sum())
    figure.suptitle(
        f"How late do flights from New York arrive?  {total:,} departures in 2013",
        fontsize=15,
        x=0.01,
        ha="left",
        color=INK,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130, facecolor="white")
    plt.close(figure)


def _draw_minutes(
    axes: Axes, minutes: pd.DataFrame, counts: pd.DataFrame, labels: list[str]
) -> None:
    norm = Normalize(-MINUTES_MAX, MINUTES_MAX)
    image = axes.imshow(minutes.to_numpy(), cmap="RdBu_r", norm=norm, aspect="auto")
    axes.set_xticks(range(minutes.shape[1]), [f"{hour}h" for hour in minutes.columns])
    axes.set_yticks(range(minutes.shape[0]), labels)
    axes.set_title(
        "Mean arrival delay in minutes; blue arrives early. "
        f"Italics: fewer than {FEW_FLIGHTS} flights. Blank: none.",
        fontsize=10,
        loc="left",
        color="#555555",
    )
    for (row, column), value in np.ndenumerate(minutes.to_numpy()):
        if np.isnan(value):
            continue
        few = counts.to_numpy()[row, column] < FEW_FLIGHTS
        dark = abs(value) > 0.6 * MINUTES_MAX
        axes.text(
            column,
            row,
            f"{round(value)}",
            ha="center",
            va="center",
            fontsize=9,
            style="italic" if few else "normal",
            color="white" if dark else INK,
        )
    axes.tick_params(length=0, labelcolor=INK)
    axes.set_xticks(np.arange(minutes.shape[1] + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(minutes.shape[0] + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="minor", length=0)
    axes.spines[:].set_visible(False)
    axes.figure.colorbar(
        image,
        ax=axes,
        location="bottom",
        extend="both",
        shrink=0.5,
        aspect=40,
        pad=0.02,
        label="minutes",
    )


def _draw_counts(axes: Axes, flights: np.ndarray) -> None:
    rows = np.arange(len(flights))
    axes.barh(rows, flights, color="#9aa5b1", height=0.7)
    axes.set_ylim(len(flights) - 0.5, -0.5)
    axes.set_xlim(0, flights.max() * 1.35)
    for row, count in enumerate(flights.tolist()):
        axes.text(
            count + flights.max() * 0.03, row, f"{count:,}", va="center", fontsize=9, color=INK
        )
    axes.set_title("Flights in the year", fontsize=10, loc="left", color="#555555")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)

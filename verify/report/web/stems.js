/* Charts that the page names: each is drawn into the figure of its id. */

const DATA = JSON.parse(document.getElementById("data").textContent);
for (const chart of DATA.charts) {
  const figure = document.getElementById(chart.id);
  figure.prepend(stems(chart.series, { label: chart.label, axis: chart.axis, least: 1 }));
}

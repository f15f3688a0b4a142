"""Which hour of the day, and which airport, makes flights late? Reads flights-20k.json and airports.csv, leaves report.json and chart.svg."""

import csv
import json
from collections import defaultdict
from statistics import mean, median, quantiles

LATE_MINUTES = 15
FEWEST_FLIGHTS = 50

with open("flights-20k.json", encoding="utf-8") as file:
    flights = json.load(file)
with open("airports.csv", encoding="utf-8", newline="") as file:
    airports = {row["iata"]: f"{row['name']} ({row['city']}, {row['state']})" for row in csv.DictReader(file)}

print(f"{len(flights):,} flights from {flights[0]['date']} to {flights[-1]['date']}", flush=True)


def describe(delays):
    return {
        "flights": len(delays),
        "mean_delay_minutes": round(mean(delays), 1),
        "median_delay_minutes": median(delays),
        "late_share": round(sum(delay > LATE_MINUTES for delay in delays) / len(delays), 3),
    }


by_hour = defaultdict(list)
by_origin = defaultdict(list)
for flight in flights:
    by_hour[int(flight["date"][11:13])].append(flight["delay"])
    by_origin[flight["origin"]].append(flight["delay"])

delays = [flight["delay"] for flight in flights]
hours = {hour: describe(by_hour[hour]) for hour in sorted(by_hour)}
origins = sorted(
    ({"airport": code, "name": airports.get(code, code), **describe(found)} for code, found in by_origin.items()),
    key=lambda origin: origin["mean_delay_minutes"],
    reverse=True,
)
busy_hours = {hour: facts for hour, facts in hours.items() if facts["flights"] >= FEWEST_FLIGHTS}
worst_hour = max(busy_hours, key=lambda hour: busy_hours[hour]["mean_delay_minutes"])
best_hour = min(busy_hours, key=lambda hour: busy_hours[hour]["mean_delay_minutes"])
busy_origins = [origin for origin in origins if origin["flights"] >= FEWEST_FLIGHTS]

overall = describe(delays)
overall["p95_delay_minutes"] = round(quantiles(delays, n=20)[-1], 1)

print(f"mean delay {overall['mean_delay_minutes']} min, median {overall['median_delay_minutes']:g}, p95 {overall['p95_delay_minutes']:g}")
print(f"{overall['late_share']:.1%} of flights are more than {LATE_MINUTES} minutes late")
print(f"best hour to leave  {best_hour:02}:00, {busy_hours[best_hour]['mean_delay_minutes']:+.1f} min on average")
print(f"worst hour to leave {worst_hour:02}:00, {busy_hours[worst_hour]['mean_delay_minutes']:+.1f} min on average")
print("most delayed airports:")
for origin in busy_origins[:5]:
    print(f"  {origin['airport']}  {origin['mean_delay_minutes']:+6.1f} min  {origin['flights']:5} flights  {origin['name']}", flush=True)

with open("report.json", "w", encoding="utf-8") as file:
    json.dump({"overall": overall, "by_hour": hours, "by_origin": origins}, file, indent=2)

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 360, 48, 48, 40
shown = {hour: busy_hours.get(hour) for hour in range(24)}
highest = max(facts["mean_delay_minutes"] for facts in busy_hours.values())
lowest = min(0, min(facts["mean_delay_minutes"] for facts in busy_hours.values()))
step = (WIDTH - LEFT - 16) / 24


def y(minutes):
    return TOP + (highest - minutes) / (highest - lowest) * (HEIGHT - TOP - BOTTOM)


marks = []
for hour, facts in shown.items():
    x = LEFT + hour * step
    marks.append(f'<text x="{x + step / 2:.1f}" y="{HEIGHT - 16}" text-anchor="middle">{hour}</text>')
    if facts is None:
        continue
    minutes = facts["mean_delay_minutes"]
    top, bottom = min(y(minutes), y(0)), max(y(minutes), y(0))
    colour = "#c2410c" if hour == worst_hour else "#15803d" if hour == best_hour else "#64748b"
    marks.append(f'<rect x="{x + 2:.1f}" y="{top:.1f}" width="{step - 4:.1f}" height="{bottom - top:.1f}" fill="{colour}"/>')
    marks.append(f'<text x="{x + step / 2:.1f}" y="{top - 5:.1f}" text-anchor="middle">{minutes:g}</text>')

with open("chart.svg", "w", encoding="utf-8") as file:
    file.write(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="11" fill="#334155">'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
        f'<text x="{LEFT}" y="22" font-size="15">Mean delay in minutes by hour of departure, {len(flights):,} flights</text>'
        f'<line x1="{LEFT}" x2="{WIDTH - 16}" y1="{y(0):.1f}" y2="{y(0):.1f}" stroke="#94a3b8"/>'
        + "".join(marks)
        + "</svg>\n"
    )
print("wrote report.json and chart.svg")

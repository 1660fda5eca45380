"use strict";
// Replaces a drawing by an interactive plot once it comes into view. Bokeh is unpacked then, not before.
(() => {
  const source = document.getElementById("plot-data");
  const packed = document.getElementById("plot-library");
  if (!source || !packed || !("DecompressionStream" in window)) return;
  const { plots, marks } = JSON.parse(source.textContent);
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const number = (value) => (value === null || typeof value === "string" ? NaN : value);
  const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3], [], [4, 4]];
  const SIZES = ["#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"];
  const SIGNS = ["#2166ac", "#92c5de", "#f7f7f7", "#f4a582", "#b2182b"];
  const TOOLS = "pan,box_zoom,wheel_zoom,reset,save";
  const ranges = new Map();
  // The curves of a section are zoomed together along x. Each lives in a document of its own, and
  // Bokeh lets no two of them share a range.
  const link = (range, group) => {
    const others = ranges.get(group) ?? [];
    ranges.set(group, [...others, range]);
    const follow = () => {
      for (const other of ranges.get(group) ?? []) {
        if (other !== range && (other.start !== range.start || other.end !== range.end)) {
          other.setv({ start: range.start, end: range.end });
        }
      }
    };
    range.properties.start.change.connect(follow);
    range.properties.end.change.connect(follow);
  };

  let loading = null;
  const load = () => (loading ??= (async () => {
    const text = atob(packed.textContent.trim());
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i += 1) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    const script = document.createElement("script");
    script.textContent = await new Response(stream).text();
    document.head.append(script);
    Bokeh.set_log_level("error");
    return Bokeh;
  })());

  const reach = (plot) => {
    const kin = plots.filter((p) => p.kind === "curves" && p.group === plot.group && p.x_label === plot.x_label);
    const places = kin.flatMap((p) => p.series.flatMap((series) => series.at.map(number)));
    let [low, high] = [Infinity, -Infinity];
    for (const place of places) if (Number.isFinite(place)) { low = Math.min(low, place); high = Math.max(high, place); }
    if (low > high) return [0, 1];
    const room = (high - low) * 0.02 || 1;
    return [low - room, high + room];
  };

  const shades = (anchors, levels = 256) => Array.from({ length: levels }, (_, i) => {
    const place = (i / (levels - 1)) * (anchors.length - 1);
    const k = Math.min(Math.floor(place), anchors.length - 2);
    const part = place - k;
    const channel = (hex, at) => parseInt(hex.slice(at, at + 2), 16);
    const mix = (at) => Math.round(channel(anchors[k], at) * (1 - part) + channel(anchors[k + 1], at) * part);
    return `#${[1, 3, 5].map((at) => mix(at).toString(16).padStart(2, "0")).join("")}`;
  });

  const ink = (hex) => {
    const [r, g, b] = [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
    return 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#000" : "#fff";
  };

  const dress = (figure) => {
    figure.background_fill_color = null;
    figure.border_fill_color = null;
    figure.outline_line_color = colour("edge");
    figure.toolbar.logo = null;
    figure.toolbar.autohide = true;
    for (const axis of [...figure.below, ...figure.left]) {
      axis.axis_line_color = colour("edge");
      axis.major_tick_line_color = colour("edge");
      axis.minor_tick_line_color = null;
      axis.major_label_text_color = colour("soft");
      axis.axis_label_text_color = colour("soft");
      axis.axis_label_text_font_style = "normal";
    }
    for (const grid of figure.center) if ("grid_line_color" in grid) grid.grid_line_color = colour("edge");
    for (const legend of figure.center) {
      if (!("label_text_color" in legend)) continue;
      legend.label_text_color = colour("ink");
      legend.background_fill_color = colour("paper");
      legend.border_line_color = colour("edge");
      legend.click_policy = "hide";
    }
    const narrow = innerWidth < 600;
    for (const axis of figure.below) {
      if (axis.axis_label === "step" && "min_interval" in axis.ticker) axis.ticker.min_interval = 1;
      if (narrow && "desired_num_ticks" in axis.ticker) axis.ticker.desired_num_ticks = 3;
    }
    const beside = figure.center.filter((part) => "label_text_color" in part && "click_policy" in part);
    figure.center = figure.center.filter((part) => !beside.includes(part));
    const side = narrow ? "below" : "right"; // over the curves it would hide some of them
    figure[side] = [...figure[side], ...beside];
    return figure;
  };

  const named = (axis, names) => {
    axis.ticker = new Bokeh.FixedTicker({ ticks: names.map((name) => name[0]) });
    axis.major_label_overrides = new Map(names.map(([at, label]) => [at, label]));
  };
  const some = (labels, most, at, length = 24) => {
    const every = Math.ceil(labels.length / most) || 1;
    return labels.map((label, i) => [at(i), label.length > length ? `…${label.slice(1 - length)}` : label])
      .filter((_, i) => i % every === 0);
  };
  const hover = (figure, tooltips, renderers) =>
    figure.add_tools(new Bokeh.HoverTool({ tooltips, renderers }));

  const KINDS = {
    curves(plot) {
      const log = plot.scale === "log";
      const options = {
        height: 260, tools: TOOLS, active_drag: "box_zoom", x_axis_label: plot.x_label,
        y_axis_label: plot.unit, y_axis_type: log ? "log" : "linear", x_range: reach(plot),
      };
      const values = plot.series.flatMap((series) => series.values.map(number)).filter(Number.isFinite);
      if (values.length && values.every((value) => value === values[0])) {
        const [value, room] = [values[0], Math.abs(values[0]) / 2 || 1];
        options.y_range = log && value > 0 ? [value / 2, value * 2] : [value - room, value + room];
      }
      const figure = Bokeh.Plotting.figure(options);
      link(figure.x_range, `${plot.group}/${plot.x_label}`);
      const drawn = [];
      let top = -Infinity;
      plot.series.forEach((series, k) => {
        const y = series.values.map(number).map((v) => (Number.isFinite(v) && (!log || v > 0) ? v : NaN));
        for (const value of y) if (value > top) top = value;
        const data = new Bokeh.ColumnDataSource({
          data: { x: series.at.map(number), y, name: series.at.map(() => series.name) },
        });
        const line = { line_color: colour(`c${k % 6}`), line_width: 2, line_dash: DASHES[k % 6] };
        if (plot.series.length > 1) line.legend_label = series.name;
        drawn.push(figure.line({ field: "x" }, { field: "y" }, { source: data, ...line }));
        if (y.length <= 64) { // a value between two that are missing has no line
          const tint = { fill_color: colour(`c${k % 6}`), line_color: null };
          figure.scatter({ field: "x" }, { field: "y" }, { source: data, size: 4, ...tint });
        }
      });
      figure.add_tools(new Bokeh.HoverTool({
        tooltips: [["", "@name"], [plot.x_label, "@x{0,0}"], ["value", "@y{0.[000000]a}"]],
        renderers: drawn, mode: "vline", line_policy: "nearest",
      }));
      const broken = plot.series.flatMap((series) => series.at
        .map((place, i) => ({ place: number(place), value: series.values[i], name: series.name }))
        .filter((point) => Number.isFinite(point.place) && typeof point.value === "string"));
      if (broken.length && Number.isFinite(top)) {
        const data = new Bokeh.ColumnDataSource({ data: {
          x: broken.map((point) => point.place), y: broken.map(() => top),
          value: broken.map((point) => point.value), name: broken.map((point) => point.name),
        } });
        const crosses = figure.scatter({ field: "x" }, { field: "y" }, {
          source: data, size: 8, marker: "x", line_color: colour("high"), line_width: 2,
        });
        hover(figure, [["", "@name"], [plot.x_label, "@x{0,0}"], ["value", "@value"]], [crosses]);
      }
      const places = plot.series.flatMap((series) => series.at.map(number)).filter(Number.isFinite);
      const [low, high] = [Math.min(...places), Math.max(...places)];
      const inside = plot.x_label === "step" ? marks.filter((m) => m.step >= low && m.step <= high) : [];
      for (const mark of inside) {
        figure.add_layout(new Bokeh.Span({
          location: mark.step, dimension: "height", line_color: colour(mark.severity), line_dash: [3, 3],
        }));
      }
      if (inside.length && Number.isFinite(top)) {
        const data = new Bokeh.ColumnDataSource({ data: {
          x: inside.map((m) => m.step), y: inside.map(() => top), label: inside.map((m) => m.label),
          tint: inside.map((m) => colour(m.severity)),
        } });
        const dots = figure.scatter({ field: "x" }, { field: "y" }, {
          source: data, size: 9, marker: "inverted_triangle", fill_color: { field: "tint" }, line_color: null,
        });
        hover(figure, [["issue", "@label"], ["step", "@x{0,0}"]], [dots]);
      }
      return figure;
    },

    heat_map(plot) {
      const [rows, columns] = [plot.rows.length, plot.columns.length];
      const cells = { x: [], y: [], value: [], row: [], column: [] };
      const log = plot.scale === "log";
      plot.values.forEach((row, i) => row.forEach((given, j) => {
        const value = number(given);
        if (!Number.isFinite(value) || (log && value <= 0)) return;
        cells.x.push(j); cells.y.push(rows - 1 - i); cells.value.push(value);
        cells.row.push(plot.rows[i]); cells.column.push(plot.columns[j]);
      }));
      let [low, high] = [Infinity, -Infinity];
      for (const value of cells.value) { low = Math.min(low, value); high = Math.max(high, value); }
      if (plot.scale === "signed") { high = Math.max(Math.abs(low), Math.abs(high)); low = -high; }
      if (low === high) { // of one number the half and the double, as long as there are such numbers
        const room = Math.abs(low) / 2 || 1;
        [low, high] = log ? [low / 2, Math.min(high * 2, Number.MAX_VALUE)] : [low - room, high + room];
      }
      if (log) { low = Math.max(low, 1e-300); high = Math.max(high, 2 * low); } // no ticks below
      const Mapper = log ? Bokeh.LogColorMapper : Bokeh.LinearColorMapper;
      const palette = shades(plot.scale === "signed" ? SIGNS : SIZES);
      const mapper = new Mapper({ palette, low, high });
      const small = Math.max(rows, columns) <= 12; // as the drawing: its numbers can be read
      const figure = Bokeh.Plotting.figure({
        height: Math.min(520, Math.max(200, (small ? 34 : 14) * rows + 90)), tools: TOOLS, active_drag: "box_zoom",
        x_axis_label: plot.column_label, y_axis_label: plot.row_label,
        x_range: [-0.5, columns - 0.5], y_range: [-0.5, rows - 0.5],
      });
      const drawn = figure.rect({ field: "x" }, { field: "y" }, 1, 1, {
        source: new Bokeh.ColumnDataSource({ data: cells }),
        fill_color: { field: "value", transform: mapper }, line_color: small ? colour("paper") : null,
      });
      const room = Math.floor((innerWidth < 600 ? 24 : 84) / columns); // characters over a column
      if (small && room >= 5) {
        const share = (v) => { // halves, for the difference of two numbers may be none
          const part = log ? Math.log(v / low) / Math.log(high / low) : (v / 2 - low / 2) / (high / 2 - low / 2);
          return Math.min(1, Math.max(0, part || 0));
        };
        const text = cells.value.map((value) => `${Number(value.toPrecision(3))}`);
        const tint = cells.value.map((value) => ink(palette[Math.round(255 * share(value))]));
        figure.text({ field: "x" }, { field: "y" }, { field: "text" }, {
          source: new Bokeh.ColumnDataSource({ data: { x: cells.x, y: cells.y, text, tint } }),
          text_color: { field: "tint" }, text_font_size: "12px", text_align: "center", text_baseline: "middle",
        });
      }
      hover(figure, [
        [plot.row_label || "row", "@row"], [plot.column_label || "column", "@column"], ["value", "@value"],
      ], [drawn]);
      for (const grid of figure.center) grid.visible = false;
      const names = some(plot.columns, small ? 12 : 8, (i) => i, small ? 18 : 10);
      named(figure.below[0], names);
      if (small && names.some(([, label]) => label.length > room)) figure.below[0].major_label_orientation = 0.6;
      named(figure.left[0], some(plot.rows, 24, (i) => rows - 1 - i));
      figure.add_layout(new Bokeh.ColorBar({
        color_mapper: mapper, background_fill_color: null, major_label_text_color: colour("soft"), width: 12,
        major_tick_line_color: colour("soft"),
      }), "right");
      return figure;
    },

    ladder(plot) {
      const count = plot.rungs.length;
      const log = plot.scale === "log";
      const figure = Bokeh.Plotting.figure({
        height: Math.min(520, Math.max(160, 20 * count + 70)), tools: TOOLS, active_drag: "box_zoom",
        x_axis_label: plot.unit, x_axis_type: log ? "log" : "linear", y_range: [-0.5, count - 0.5],
      });
      const drawn = [];
      plot.series.forEach((series, k) => {
        const values = series.values.map(number);
        const data = new Bokeh.ColumnDataSource({ data: {
          x: values.map((v) => (Number.isFinite(v) && (!log || v > 0) ? v : NaN)),
          y: series.at.map((place) => count - 1 - place),
          rung: series.at.map((place) => plot.rungs[place]),
          name: series.at.map(() => series.name),
        } });
        const look = { line_color: colour(`c${k % 6}`), line_dash: DASHES[k % 6], legend_label: series.name };
        figure.line({ field: "x" }, { field: "y" }, { source: data, line_width: 2, ...look });
        drawn.push(figure.scatter({ field: "x" }, { field: "y" }, {
          source: data, size: 6, line_color: null, fill_color: colour(`c${k % 6}`),
        }));
      });
      hover(figure, [["", "@rung"], ["@name", "@x"]], drawn);
      if (plot.limit !== null && typeof plot.limit === "number") {
        figure.add_layout(new Bokeh.Span({
          location: plot.limit, dimension: "height", line_color: colour("high"), line_dash: [5, 4],
        }));
        figure.scatter([plot.limit], [0], { size: 0, alpha: 0 }); // keeps the limit within the range
      }
      named(figure.left[0], some(plot.rungs, 24, (i) => count - 1 - i));
      return figure;
    },

    timeline(plot) {
      const padded = ([low, high]) => [low - 0.02 * (high - low), high + 0.02 * (high - low)];
      const spans = plot.spans.filter((span) => typeof span.start === "number" && typeof span.end === "number");
      const lanes = [...new Set(spans.map((span) => span.lane))];
      const lane = (span) => lanes.length - 1 - lanes.indexOf(span.lane);
      const data = new Bokeh.ColumnDataSource({ data: {
        left: spans.map((span) => span.start), right: spans.map((span) => span.end),
        top: spans.map((span) => lane(span) + 0.25), bottom: spans.map((span) => lane(span) - 0.25),
        label: spans.map((span) => span.label),
        tint: spans.map((span) => colour(span.severity || "info")),
      } });
      const figure = Bokeh.Plotting.figure({
        height: Math.max(140, 24 * lanes.length + 70), tools: TOOLS, active_drag: "box_zoom",
        x_axis_label: plot.x_label, y_range: [-0.5, lanes.length - 0.5],
        ...(plot.reach ? { x_range: padded(plot.reach) } : {}),
      });
      const bars = figure.quad({ field: "left" }, { field: "right" }, { field: "bottom" }, { field: "top" }, {
        source: data, fill_color: { field: "tint" }, line_color: { field: "tint" },
      });
      const moments = spans.filter((span) => span.start === span.end);
      const dots = figure.scatter({ field: "left" }, { field: "y" }, {
        source: new Bokeh.ColumnDataSource({ data: {
          left: moments.map((span) => span.start), right: moments.map((span) => span.end),
          y: moments.map(lane), label: moments.map((span) => span.label),
          tint: moments.map((span) => colour(span.severity || "info")),
        } }),
        size: 9, fill_color: { field: "tint" }, line_color: null,
      });
      hover(figure, [["", "@label"], ["first", "@left{0,0}"], ["last", "@right{0,0}"]], [bars, dots]);
      named(figure.left[0], some(lanes, 40, (i) => lanes.length - 1 - i));
      return figure;
    },
  };

  const draw = async (element) => {
    await load();
    const plot = plots[Number(element.dataset.plot)];
    const live = element.querySelector(".live");
    live.hidden = false;
    live.replaceChildren();
    const figure = dress(KINDS[plot.kind](plot));
    figure.sizing_mode = "stretch_width";
    await Bokeh.Plotting.show(figure, live);
    element.classList.add("is-live");
  };

  const keep = (element, reason) => {
    element.querySelector(".live").hidden = true; // the drawing stays
    element.classList.remove("is-live");
    console.warn(`nabla: ${element.id} stays a drawing: ${reason}`);
  };
  const waiting = new IntersectionObserver((entries) => {
    for (const { isIntersecting, target } of entries) {
      if (!isIntersecting) continue;
      waiting.unobserve(target);
      draw(target).catch((error) => keep(target, error));
    }
  }, { rootMargin: "200px" });
  const figures = [...document.querySelectorAll("figure[data-plot]")];
  for (const element of figures) waiting.observe(element);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    ranges.clear();
    for (const element of figures) if (element.classList.contains("is-live")) draw(element).catch((e) => keep(element, e));
  });
})();

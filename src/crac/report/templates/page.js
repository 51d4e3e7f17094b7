(() => {
  "use strict";
  // Tables: a heading sorts by its column, once more the other way round; empty cells stay last.
  for (const button of document.querySelectorAll("table.sortable th button")) {
    button.addEventListener("click", () => {
      const heading = button.closest("th"), table = button.closest("table"), body = table.tBodies[0];
      const column = [...heading.parentNode.children].indexOf(heading);
      const upwards = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", upwards ? "ascending" : "descending");
      const value = (row) => row.cells[column].dataset.value;
      const known = (row) => value(row) !== "";
      const number = [...body.rows].filter(known).every((row) => !Number.isNaN(Number(value(row))));
      const compare = (a, b) => number ? Number(value(a)) - Number(value(b)) : value(a).localeCompare(value(b), "en", {numeric: true});
      const rows = [...body.rows].sort((a, b) =>
        known(a) !== known(b) ? (known(a) ? -1 : 1) : known(a) ? (upwards ? 1 : -1) * compare(a, b) : 0);
      body.append(...rows);
    });
  }
  // What is printed is all of it.
  addEventListener("beforeprint", () => { for (const more of document.querySelectorAll("details.more")) more.open = true; });

  const data = JSON.parse(document.getElementById("data").textContent);
  const SURE = [[0, 34, 78], [59, 73, 108], [112, 113, 115], [165, 156, 116], [254, 232, 56]];
  const WRONG = [[91, 74, 18], [230, 159, 0], [255, 75, 31]];
  const shade = (stops, share) => {
    const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1), low = Math.min(Math.floor(place), stops.length - 2);
    return stops[low].map((value, channel) => value + (place - low) * (stops[low + 1][channel] - value));
  };
  const pixels = (uri) => new Promise((resolve) => {
    if (!uri) return resolve(null);
    const image = new Image();
    image.onload = () => {
      const canvas = document.createElement("canvas");
      [canvas.width, canvas.height] = [image.width, image.height];
      const context = canvas.getContext("2d", {willReadFrequently: true});
      context.drawImage(image, 0, 0);
      resolve(context.getImageData(0, 0, image.width, image.height).data);
    };
    image.src = uri;
  });

  const outline = (context, classes, at, rows, columns, k, sx, sy) => {
    context.beginPath();
    const inside = (r, c) => r >= 0 && c >= 0 && r < rows && c < columns && classes[at(r, c)] === k;
    for (let r = 0; r <= rows; r++) for (let c = 0; c <= columns; c++) {
      const here = inside(r, c);
      if (here !== inside(r - 1, c)) { context.moveTo(c * sx, r * sy); context.lineTo((c + 1) * sx, r * sy); }
      if (here !== inside(r, c - 1)) { context.moveTo(c * sx, r * sy); context.lineTo(c * sx, (r + 1) * sy); }
    }
    context.stroke();
  };

  const draw = (model, index, settings) => {
    const {rows, columns, aspect, maps, image, canvases} = model;
    const size = rows * columns, start = index * size, floor = 1 / data.colours.length;
    const layers = canvases.map(() => new ImageData(columns, rows));
    for (let p = 0; p < size; p++) {
      const m = 4 * (start + p), label = maps[m], prediction = maps[m + 1], sure = maps[m + 2] / 255;
      const raw = image ? image[m] / 255 : 0.1;
      const grey = 255 * Math.min(Math.max((raw - settings.level) / settings.width + 0.5, 0), 1);
      const share = (sure - floor) / (1 - floor);
      const colours = [[grey, grey, grey], shade(SURE, share),
        label === prediction || label === 255 ? [grey * 0.45, grey * 0.45, grey * 0.45] : shade(WRONG, share)];
      colours.forEach((colour, layer) => layers[layer].data.set([...colour, 255], 4 * p));
    }
    const scale = Math.max(1, Math.round(560 / columns)), sx = scale, sy = scale * aspect;
    canvases.forEach((canvas, layer) => {
      [canvas.width, canvas.height] = [columns * sx, Math.round(rows * sy)];
      const small = document.createElement("canvas");
      [small.width, small.height] = [columns, rows];
      small.getContext("2d").putImageData(layers[layer], 0, 0);
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = layer === 0;
      context.drawImage(small, 0, 0, canvas.width, canvas.height);
      if (layer === 2 || !settings.outlines) return;
      context.lineJoin = context.lineCap = "round";
      const paint = (channel, colour, width) => {
        const at = (r, c) => 4 * (start + r * columns + c) + channel;
        const seen = new Set();
        for (let p = 0; p < size; p++) seen.add(maps[4 * (start + p) + channel]);
        for (const k of seen) if (k && k !== 255) {
          context.strokeStyle = colour(k);
          context.lineWidth = width * canvas.width / 560;
          outline(context, maps, at, rows, columns, k, sx, sy);
        }
      };
      if (layer === 0) paint(1, (k) => data.colours[k], 4);
      paint(0, () => "#ffffff", 1.6);
    });
  };

  for (const root of document.querySelectorAll(".case")) {
    const slider = root.querySelector(".slice input"), shown = root.querySelector("output");
    const level = root.querySelector(".level input"), width = root.querySelector(".width input");
    const outlines = root.querySelector(".outlines input");
    const models = [...root.querySelectorAll(".row")].map((row) =>
      ({...data.views[row.dataset.view], canvases: [...row.querySelectorAll("canvas")]}));
    const numbers = [...new Set(models.flatMap((model) => model.slices))].sort((a, b) => a - b);
    const show = () => {
      const number = numbers[slider.value];
      shown.value = `slice ${number}`;
      slider.setAttribute("aria-valuetext", shown.value);
      for (const model of models) {
        const apart = model.slices.map((one) => Math.abs(one - number));
        draw(model, apart.indexOf(Math.min(...apart)),
          {level: level.value / 100, width: Math.max(width.value / 100, 0.01), outlines: outlines.checked});
        for (const canvas of model.canvases) canvas.dataset.slice = number;
      }
    };
    const move = (steps) => {
      slider.value = Math.min(Math.max(Number(slider.value) + steps, 0), numbers.length - 1);
      show();
    };
    slider.max = numbers.length - 1;
    slider.value = numbers.indexOf(models[0].start);
    Promise.all(models.map(async (model) => {
      [model.maps, model.image] = await Promise.all([pixels(model.maps), pixels(model.image)]);
    })).then(() => {
      for (const input of [slider, level, width, outlines]) input.addEventListener("input", show);
      const views = root.querySelector(".views");
      // At the last slice the wheel scrolls the page again.
      views.addEventListener("wheel", (event) => {
        const before = slider.value;
        move(Math.sign(event.deltaY));
        if (slider.value !== before) event.preventDefault();
      }, {passive: false});
      views.addEventListener("keydown", (event) => {
        const steps = {ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1}[event.key];
        if (steps) { event.preventDefault(); move(steps); }
      });
      show();
      root.dataset.ready = "yes";
    });
  }
})();


(function () {
  "use strict";
  var figures = JSON.parse(document.getElementById("charts").textContent);
  var root = document.documentElement;
  var dark = window.matchMedia("(prefers-color-scheme: dark)");
  var waiting = Object.keys(figures);
  var drawn = [];
  var paper = 0;

  // What is said here and by Plotly is English; a page in another language brings its words.
  var words = root.dataset.words ? JSON.parse(root.dataset.words) : null;
  function say(text) { return words && words[text] || text; }

  // A colour such as "@new" is one of the style sheet's, so that charts follow light and dark.
  function coloured(value, style) {
    if (Array.isArray(value)) return value.map(function (v) { return coloured(v, style); });
    if (value && typeof value === "object") {
      var out = {};
      Object.keys(value).forEach(function (key) {
        out[key] = /color/i.test(key) ? paint(value[key], style) : coloured(value[key], style);
      });
      return out;
    }
    return value;
  }
  function paint(value, style) {
    if (Array.isArray(value)) return value.map(function (v) { return paint(v, style); });
    if (value && typeof value === "object") return coloured(value, style);
    if (typeof value === "string" && value.charAt(0) === "@")
      return style.getPropertyValue("--" + value.slice(1)).trim();
    return value;
  }
  var config = {
    responsive: true, displaylogo: false, showSendToCloud: false, plotlyServerURL: "",
    modeBarButtons: [["zoom2d", "pan2d", "resetScale2d", "toImage"]],
    displayModeBar: window.matchMedia("(hover: hover)").matches ? "hover" : false,
    scrollZoom: false, doubleClick: "reset"
  };
  if (words) {
    config.locale = root.lang;
    config.locales = {};
    config.locales[root.lang] = { dictionary: words };
  }
  function draw(name) {
    if (typeof Plotly === "undefined") return;
    var figure = coloured(figures[name], getComputedStyle(root));
    if (paper) figure.layout.width = paper;
    var place = document.getElementById("plot-" + name);
    var first = !place.on;
    Plotly.react(place, figure.data, figure.layout, config);
    if (first) place.on("plotly_afterplot", function () { fit(place); });
    fit(place);
    // A reader of the page aloud gets the sentence and the table; loose axis labels say nothing.
    place.querySelectorAll(".main-svg").forEach(function (svg) {
      svg.setAttribute("aria-hidden", "true");
    });
  }
  // A title stands below the middle of the bars, which may leave it too little room to the right.
  function fit(place) {
    place.querySelectorAll(".xtitle").forEach(function (title) {
      title.style.transform = "";
      var over = title.getBoundingClientRect().right - place.getBoundingClientRect().right;
      if (over > 0) title.style.transform = "translateX(" + -Math.ceil(over) + "px)";
    });
  }
  function redraw() { drawn.forEach(draw); }
  function show(name) {
    var at = waiting.indexOf(name);
    if (at < 0) return;
    waiting.splice(at, 1);
    drawn.push(name);
    draw(name);
  }

  // What is seen is drawn first; the rest one by one while nothing else is to be done.
  var soon = window.requestIdleCallback || function (f) { return setTimeout(f, 30); };
  function rest() {
    if (!waiting.length) return;
    show(waiting[0]);
    soon(rest);
  }
  if ("IntersectionObserver" in window) {
    var near = new IntersectionObserver(function (entries) {
      entries.forEach(function (entry) {
        if (!entry.isIntersecting) return;
        near.unobserve(entry.target);
        show(entry.target.id.slice(5));
      });
    }, { rootMargin: "200px" });
    waiting.forEach(function (name) { near.observe(document.getElementById("plot-" + name)); });
  }
  soon(rest);

  // Light and dark: as the system has it, until the reader chooses.
  var button = document.getElementById("theme");
  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : dark.matches;
  }
  function tell() {
    if (button) button.textContent = say(isDark() ? "Light colours" : "Dark colours");
  }
  if (button) button.addEventListener("click", function () {
    root.dataset.theme = isDark() ? "light" : "dark";
    tell();
    redraw();
  });
  dark.addEventListener("change", function () { tell(); redraw(); });
  tell();

  // A link to what is folded away opens it.
  function open() {
    var target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    var inner = target.querySelector("details");
    if (target.className === "linked" && inner) inner.open = true;
    for (var up = target.parentElement; up; up = up.parentElement)
      if (up.tagName === "DETAILS") up.open = true;
  }
  window.addEventListener("hashchange", open);
  open();

  // On paper everything is unfolded, light, and as wide as the sheet.
  var before = null;
  window.addEventListener("beforeprint", function () {
    before = { theme: root.dataset.theme || "", closed: [] };
    root.dataset.theme = "light";
    document.querySelectorAll("details:not([open]):not(.linked *)").forEach(function (d) {
      before.closed.push(d);
      d.open = true;
    });
    paper = 640;
    while (waiting.length) show(waiting[0]);
    redraw();
  });
  window.addEventListener("afterprint", function () {
    if (!before) return;
    before.closed.forEach(function (d) { d.open = false; });
    if (before.theme) root.dataset.theme = before.theme;
    else delete root.dataset.theme;
    before = null;
    paper = 0;
    redraw();
  });
})();

// Two bits, in closed form: drag the temperature and the rounds, and see the loss and the error move.
"use strict";
strop.theory = (() => {
  const log1pExp = (x) => (x > 0 ? x + Math.log1p(Math.exp(-x)) : Math.log1p(Math.exp(x)));
  const kl = (p, logQ, logRest) => p * (Math.log(p) - logQ) + (1 - p) * (Math.log(1 - p) - logRest);
  // As strop.theory.pair: s is how often the bits agree, c how often they share a round, lam one over the temperature.
  function pair(s, c, lam) {
    const logit = Math.log(s) - Math.log1p(-s), x = lam * logit;
    const logU = -log1pExp(-x), logMiss = -log1pExp(x), u = Math.exp(logU), miss = Math.exp(logMiss);
    const t = c / 2 + (1 - c) * u, rest = c / 2 + (1 - c) * miss;
    const finite = c < 2 * (1 - s) - 1e-12, uStar = finite ? (s - c / 2) / (1 - c) : null;
    return {
      u, t, KL_out: kl(s, Math.log(t), Math.log(rest)), C_N: (1 - c) * kl(s, logU, logMiss),
      lambda_star: finite ? (Math.log(uStar) - Math.log1p(-uStar)) / logit : null,
    };
  }
  return { pair };
})();

strop.setUp.push((root) => {
  const { element, drawn, number } = strop, place = root.querySelector("#theory");
  if (!place) return;
  const W = 420, H = 190, L = 44, B = 30;
  const slider = (id, text, min, max, step, value) => {
    const label = element("label"), input = element("input"), said = element("span", "", text);
    Object.assign(input, { type: "range", id, min, max, step });
    input.value = value;
    const tell = () => { said.textContent = `${text}: ${input.value}`; };
    input.addEventListener("input", tell);
    tell();
    label.append(said, input);
    return [label, input];
  };
  const [heat, tau] = slider("theory-temperature", "Temperature", 0.25, 2, 0.01, 1);
  const [round, rounds] = slider("theory-rounds", "Rounds", 2, 16, 1, 2);
  const [agree, s] = slider("theory-agree", "How often the two bits agree", 0.55, 0.95, 0.01, 0.7);
  const svg = drawn("svg", { viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Loss and error against the inverse temperature" });
  const says = element("p", "facts"), bars = element("div", "law");
  says.setAttribute("aria-live", "polite");
  const controls = element("div", "controls how");
  controls.append(heat, round, agree);
  place.append(controls, says, bars, svg);

  function draw() {
    const temperature = Number(tau.value), n = Number(rounds.value), share = Number(s.value), lam = 1 / temperature;
    const now = strop.theory.pair(share, 1 / n, lam), star = now.lambda_star;
    says.textContent = `Outputs agree ${number(100 * now.t, 3)}% of the time, the data ${number(100 * share, 3)}%. ` +
      `Error of the outputs ${number(now.KL_out, 3)} nats; loss as a predictor, over the best, ${number(now.C_N, 3)} nats. ` +
      (star === null ? "No temperature makes the outputs exact: the bits share a round too often."
        : `The outputs are exact at temperature ${number(1 / star, 3)}; the loss is least at 1.`);
    const law = [["00", now.t / 2, share / 2], ["01", (1 - now.t) / 2, (1 - share) / 2], ["10", (1 - now.t) / 2, (1 - share) / 2], ["11", now.t / 2, share / 2]];
    bars.replaceChildren(...law.map(([bits, drawnAt, wanted]) => {
      const row = element("div", "bar"), fill = element("span", "fill"), mark = element("span", "goal");
      fill.style.width = 200 * drawnAt + "%";
      mark.style.left = 200 * wanted + "%";
      const track = element("span", "track");
      track.append(fill, mark);
      row.append(element("code", "", bits), track, element("span", "", `${number(100 * drawnAt, 3)}%, data ${number(100 * wanted, 3)}%`));
      return row;
    }));
    curves(share, 1 / n, lam, now);
  }

  function curves(share, c, lam, now) {
    const from = 0.4, to = Math.max(4.5, lam * 1.1), points = Array.from({ length: 121 }, (_, i) => from + (to - from) * i / 120);
    const found = points.map((one) => strop.theory.pair(share, c, one));
    const top = Math.max(...found.map((one) => Math.max(one.C_N, one.KL_out)), 1e-6);
    const x = (v) => L + (W - L - 8) * (v - from) / (to - from), y = (v) => H - B - (H - B - 10) * v / top;
    const path = (key, colour) => drawn("path", { fill: "none", "stroke-width": 2, style: `stroke: var(${colour})`,
      d: found.map((one, i) => `${i ? "L" : "M"}${x(points[i]).toFixed(1)} ${y(one[key]).toFixed(1)}`).join("") });
    const dot = (key, colour) => drawn("circle", { cx: x(lam), cy: y(now[key]), r: 4, style: `fill: var(${colour})` });
    const text = (at, up, words, anchor) => drawn("text", { x: at, y: up, "font-size": 11, "text-anchor": anchor || "middle" }, words);
    const ticks = [0.5, 1, 2, 3, 4].flatMap((one) => [text(x(one), H - B + 14, String(one))]);
    svg.replaceChildren(
      drawn("path", { d: `M${L} 8V${H - B}H${W - 8}`, fill: "none", style: "stroke: var(--grey)" }), ...ticks,
      text((L + W) / 2, H - 2, "λ = one over the temperature"), text(4, 14, number(top, 2), "start"), text(4, H - B, "0 nats", "start"),
      path("C_N", "--orange"), path("KL_out", "--blue"), dot("C_N", "--orange"), dot("KL_out", "--blue"),
      drawn("rect", { x: L + 60, y: 8, width: 12, height: 3, style: "fill: var(--orange)" }), text(L + 76, 13, "loss as a predictor", "start"),
      drawn("rect", { x: L + 60, y: 24, width: 12, height: 3, style: "fill: var(--blue)" }), text(L + 76, 29, "error of the outputs", "start"));
  }
  for (const input of [tau, rounds, s]) input.addEventListener("input", draw);
  draw();
});

"""The definitions of the paper as plain loops: slow, and sharing no code with `strop.theory`.

Outputs and paths are tuples, laws are dictionaries, sets are frozensets.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np


def _entropy(law):
    return -math.fsum(p * math.log(p) for p in law.values() if p > 0)


class Reference:
    def __init__(self, document):
        P = np.array(document["P"], dtype=float)
        self.shape, self.L = P.shape, P.ndim
        self.grid = list(document["grid"])
        self.N = len(self.grid) - 1
        self.delta = [b - a for a, b in zip(self.grid, self.grid[1:], strict=False)]
        self.outputs = list(product(*map(range, self.shape)))
        self.P = {x: float(P[x]) for x in self.outputs}
        lam = document.get("lam", 1.0)
        self.lam = list(lam) if isinstance(lam, list) else [lam] * self.N
        self.q = document.get("denoiser", "bayes")
        self._cache = {}

    def marginal(self, A, x):
        A = frozenset(A)
        key = (A, tuple(x[k] for k in sorted(A)))
        if key not in self._cache:
            self._cache[key] = math.fsum(
                p for y, p in self.P.items() if all(y[k] == x[k] for k in A)
            )
        return self._cache[key]

    def subset_entropy(self, A):
        law = {tuple(x[k] for k in sorted(A)): self.marginal(A, x) for x in self.outputs}
        return _entropy(law)

    def predict(self, k, i, A, x):
        """The list q^i(v | x_A) over v in round k, before tempering."""
        if self.q == "bayes":
            tables = "bayes"
        else:
            tables = self.q if isinstance(self.q[0], dict) else self.q[k]
        if tables == "bayes":
            below = self.marginal(A, x)
            if below <= 0:
                return [1 / self.shape[i]] * self.shape[i]
            return [
                self.marginal(A | {i}, (*x[:i], v, *x[i + 1 :])) / below
                for v in range(self.shape[i])
            ]
        (entry,) = [t for t in tables if t["i"] == i and set(t["A"]) == set(A)]
        table = np.array(entry["table"])
        where = [x[j] if j in A else 0 for j in range(self.L)]
        return [
            float(table[tuple(v if j == i else where[j] for j in range(self.L))])
            for v in range(self.shape[i])
        ]

    def tempered(self, k, i, A, x, lam):
        q = self.predict(k, i, A, x)
        powers = [v**lam if v > 0 else 0.0 for v in q]
        return [p / math.fsum(powers) for p in powers]

    def paths(self):
        return list(product(range(self.N), repeat=self.L))

    def nu(self, K):
        return math.prod(self.delta[k] for k in K)

    def path_law(self, K, x, lam=None):
        """Q^S(x)."""
        out = 1.0
        for i, k in enumerate(K):
            A = frozenset(j for j in range(self.L) if K[j] < k)
            out *= self.tempered(k, i, A, x, self.lam[k] if lam is None else lam)[x[i]]
        return out

    def profile(self, a, term):
        """sum_i E_A term(i, A), each other coordinate visible with probability a."""
        total = 0.0
        for i in range(self.L):
            others = [j for j in range(self.L) if j != i]
            for keep in product((0, 1), repeat=len(others)):
                A = frozenset(j for j, kept in zip(others, keep, strict=True) if kept)
                chance = math.prod(a if kept else 1 - a for kept in keep)
                if chance > 0:
                    total += chance * term(i, A)
        return total

    def h(self, a):
        return self.profile(a, lambda i, A: self.subset_entropy(A | {i}) - self.subset_entropy(A))

    def c(self, k, a):
        def term(i, A):
            return -math.fsum(
                p * math.log(self.tempered(k, i, A, x, self.lam[k])[x[i]])
                for x, p in self.P.items()
                if p > 0
            )

        return self.profile(a, term)

    def pi(self, lam=None):
        return {
            x: math.fsum(self.nu(K) * self.path_law(K, x, lam) for K in self.paths())
            for x in self.outputs
        }

    def kl(self, lam=None):
        pi = self.pi(lam)
        return math.fsum(p * math.log(p / pi[x]) for x, p in self.P.items() if p > 0)

    def account(self):
        H = _entropy(self.P)
        pi = self.pi()
        h = [self.h(a) for a in self.grid[:-1]]
        c = [self.c(k, a) for k, a in enumerate(self.grid[:-1])]
        J = math.fsum(d * v for d, v in zip(self.delta, c, strict=True))
        left = math.fsum(d * v for d, v in zip(self.delta, h, strict=True))
        aug = credit = 0.0
        for x, p in self.P.items():
            if p == 0:
                continue
            for K in self.paths():
                q, nu = self.path_law(K, x), self.nu(K)
                aug += p * nu * math.log(p * nu / (nu * q))
                credit += p * nu * math.log(nu / (nu * q / pi[x]))
        everyone = frozenset(range(self.L))
        dependence = math.fsum(
            self.subset_entropy({i}) + self.subset_entropy(everyone - {i}) - H
            for i in range(self.L)
        )
        return {
            "H_X": H,
            "J_N": J,
            "B_N": left - H,
            "C_N": J - left,
            "R_N": credit,
            "KL_out": self.kl(),
            "KL_aug": aug,
            "H_pi": _entropy(pi),
            "TV": 0.5 * math.fsum(abs(p - pi[x]) for x, p in self.P.items()),
            "h_at_grid": h,
            "c_at_grid": c,
            "dependence_sum": dependence,
            "mesh_bound": max(self.delta) * dependence,
            "pinsker_bound": math.sqrt(max(J - H, 0.0) / 2),
            "share_prob_c": math.fsum(d * d for d in self.delta),
        }

    def direction(self):
        """g and its split, from w, sigma and eta path by path."""
        pi = self.pi(1.0)
        rows = []
        for x, p in self.P.items():
            if p == 0:
                continue
            for K in self.paths():
                q, eta = self.path_law(K, x, 1.0), 0.0
                for i, k in enumerate(K):
                    A = frozenset(j for j in range(self.L) if K[j] < k)
                    eta += _entropy(dict(enumerate(self.tempered(k, i, A, x, 1.0))))
                rows.append((x, p, self.nu(K), q / pi[x], -math.log(q), eta))
        mean = {
            "w": math.fsum(p * nu * w for _, p, nu, w, _, _ in rows),
            "e": math.fsum(p * nu * e for _, p, nu, _, _, e in rows),
            "we": math.fsum(p * nu * w * e for _, p, nu, w, _, e in rows),
            "g": math.fsum(p * nu * w * (s - e) for _, p, nu, w, s, e in rows),
        }
        sharpening = 0.0
        for x, p in self.P.items():
            mine = [(nu, w, s) for y, _, nu, w, s, _ in rows if y == x]
            sharpening += p * (
                math.fsum(nu * w * s for nu, w, s in mine)
                - math.fsum(nu * w for nu, w, s in mine) * math.fsum(nu * s for nu, w, s in mine)
            )
        return {
            "g": mean["g"],
            "sharpening_term": sharpening,
            "cov_w_eta": mean["we"] - mean["w"] * mean["e"],
        }

# The published estimators in plain R, written from their description: weighting (Wastvedt, Huling,
# Wolfson 2023) and small groups (the same, 2024). Arguments and outputs have the names of the R
# package faircfint. `exact` runs every fit to its maximum, where the package stops short of it.

analysis_estimation <- function(
    data, cutoff, estimator_type = "standard", pi_model = NULL, pi_model_type = "glm", pi_xvars,
    gen_null = FALSE, R_null = 500, bootstrap = "none", B = 500, m_factor = 0.75,
    outcome_model_type = "glm", outcome_xvars = NULL, fit_method_int = "multinomial", nfolds = 5,
    pa_xvars_int = NULL, data_external = NULL, fit_method_ext = "multinomial",
    pa_xvars_ext = NULL, borrow_metric = "brier", exact = FALSE) {
  stopifnot(pi_model_type == "glm", outcome_model_type == "glm",
            fit_method_int == "multinomial", fit_method_ext == "multinomial")
  data <- complete(transform(data, Y = recoded(Y), D = recoded(D)), "data")
  if (!is.null(pi_model)) given <- predict(pi_model, data, type = "response")
  data <- with_groups(data)
  data$S <- as.numeric(data$S_prob >= cutoff)
  small <- list(borrows = estimator_type == "small_borrow", exact = exact, nfolds = nfolds,
                outcome_xvars = outcome_xvars, pa_xvars_int = pa_xvars_int, metric = borrow_metric)
  if (estimator_type == "standard") small <- NULL
  if (estimator_type == "small_borrow") {
    outside <- with_groups(complete(data_external, "data_external"))
    # covariates are standardised here, and not where the model predicts
    small$external <- membership(standardised(outside, pa_xvars_ext), pa_xvars_ext, exact)
  }
  own <- function(data) fitted(logistic("D", pi_xvars, data, exact))
  refitted <- function(data) figures(data, own(data), small)$defs

  # the order of the random numbers: null, bootstrap, estimate
  table_null <- boot_out <- NULL
  if (gen_null) table_null <- t(replicate(R_null, {
    permuted <- data
    permuted[c("A1", "A2", "group")] <- data[sample(nrow(data)), c("A1", "A2", "group")]
    refitted(permuted)
  }))
  if (bootstrap == "rescaled") boot_out <- t(replicate(B, {
    refitted(data[subsample(data, m_factor), ])
  }))
  pi <- if (is.null(pi_model)) own(data) else given
  c(figures(data, pi, small), list(table_null = table_null, boot_out = boot_out))
}

# -- data ------------------------------------------------------------------------------------------

recoded <- function(x) {
  stopifnot(length(unique(x)) == 2)
  as.numeric(x == max(x))
}

complete <- function(data, what) {
  keep <- complete.cases(data)
  if (!all(keep)) warning(what, ": rows with missing values are dropped: ", sum(!keep))
  data[keep, ]
}

with_groups <- function(data) {
  data$A1 <- factor(as.character(data$A1))
  data$A2 <- factor(as.character(data$A2))
  # A1 slow, A2 fast
  data$group <- interaction(data$A1, data$A2, sep = "", lex.order = TRUE)
  data
}

standardised <- function(data, xvars) {
  for (x in xvars) {
    v <- data[[x]]
    if (is.numeric(v)) data[[x]] <- (v - mean(v)) / sd(v)
  }
  data
}

# -- models ----------------------------------------------------------------------------------------

cut <- function(p) pmin(pmax(p, 0.005), 0.995)

logistic <- function(y, xvars, data, exact) {
  control <- if (exact) glm.control(epsilon = 1e-15, maxit = 100) else glm.control()
  glm(reformulate(xvars, y), family = binomial, data = data, control = control)
}

# What predicts the probabilities of the groups, cut. Two levels of A1 alone are left to `glm`.
membership <- function(data, xvars, exact) {
  if (nlevels(data$A1) == 2 && nlevels(data$A2) == 1) {
    data$second <- as.numeric(data$group == levels(data$group)[2])
    fit <- logistic("second", xvars, data, exact)
    return(function(new) {
      p <- predict(fit, new, type = "response")
      cut(cbind(1 - p, p))
    })
  }
  fit <- nnet::multinom(reformulate(xvars, "group"), data = data, trace = FALSE)
  if (exact) at_maximum(fit, data) else function(new) cut(predict(fit, new, type = "probs"))
}

# `multinom` ends where the likelihood hardly changes. Newton's steps go on to its maximum.
at_maximum <- function(fit, data) {
  design <- function(data) model.matrix(delete.response(terms(fit)), data, xlev = fit$xlevels)
  probabilities <- function(X, b) {
    e <- exp(cbind(0, X %*% b))
    e / rowSums(e)
  }
  X <- design(data)
  b <- t(coef(fit))
  own <- outer(as.integer(data$group), seq_len(nlevels(data$group)), "==")
  for (step in 1:4) {
    p <- probabilities(X, b)[, -1]
    information <- -crossprod(do.call(cbind, lapply(seq_len(ncol(p)), function(j) X * p[, j])))
    for (j in seq_len(ncol(p))) {
      at <- (j - 1) * ncol(X) + seq_len(ncol(X))
      information[at, at] <- information[at, at] + crossprod(X, X * p[, j])
    }
    b <- b + solve(information, as.vector(crossprod(X, own[, -1] - p)))
  }
  function(new) cut(probabilities(design(new), b))
}

# Within each group at random, numbered 1, 2, ... from the start.
deal_folds <- function(group, nfolds) {
  fold <- integer(length(group))
  for (g in levels(group)) {
    rows <- which(group == g)
    fold[rows[sample(length(rows))]] <- rep_len(seq_len(nfolds), length(rows))
  }
  fold
}

out_of_fold <- function(data, xvars, fold, exact) {
  data <- standardised(data, xvars)
  p <- matrix(NA, nrow(data), nlevels(data$group))
  for (k in unique(fold)) {
    p[fold == k, ] <- membership(data[fold != k, ], xvars, exact)(data[fold == k, ])
  }
  p
}

# Share of the external model.
borrowed_share <- function(inside, outside, group, metric, exact) {
  own <- outer(as.integer(group), seq_len(nlevels(group)), "==") + 0
  mixed <- function(alpha) alpha * outside + (1 - alpha) * inside
  if (metric == "auc") lost <- function(alpha) -hand_till(mixed(alpha), group)
  else lost <- function(alpha) mean(rowSums((mixed(alpha) - own)^2))
  if (metric == "auc" || !exact) return(optimize(lost, c(0, 1), tol = 1.5e-8)$minimum)
  apart <- outside - inside
  min(max(sum(apart * (own - inside)) / sum(apart^2), 0), 1)
}

# Mean over ordered pairs of groups of the AUC of the first one's probability (Hand and Till 2001).
hand_till <- function(p, group) {
  pairs <- subset(expand.grid(i = levels(group), j = levels(group)), i != j)
  colnames(p) <- levels(group)
  mean(mapply(function(i, j) {
    higher <- p[group == i, i]
    lower <- p[group == j, i]
    n <- length(higher)
    (sum(rank(c(higher, lower))[seq_len(n)]) - n * (n + 1) / 2) / (n * length(lower))
  }, as.character(pairs$i), as.character(pairs$j)))
}

# -- figures ---------------------------------------------------------------------------------------

figures <- function(data, pi, small) {
  w <- (1 - data$D) / (1 - cut(pi))
  S <- data$S
  Y <- data$Y
  by <- function(of, x) vapply(levels(of), function(g) sum(x[of == g]), 0)
  fpr <- function(of, w) by(of, S * (1 - Y) * w) / by(of, (1 - Y) * w)
  fnr <- function(of, w) by(of, (1 - S) * Y * w) / by(of, Y * w)
  rates <- list(fpr = fpr(data$group, 1 + 0 * w), fnr = fnr(data$group, 1 + 0 * w),
                cfpr = fpr(data$group, w), cfnr = fnr(data$group, w))
  margins <- list(cfpr_marg_A1 = fpr(data$A1, w), cfpr_marg_A2 = fpr(data$A2, w),
                  cfnr_marg_A1 = fnr(data$A1, w), cfnr_marg_A2 = fnr(data$A2, w))
  defs <- c(named(rates), named(margins),
            summaries(rates$cfnr, "neg"), summaries(rates$cfpr, "pos"))
  alpha <- NULL
  if (!is.null(small)) {
    everyone <- factor(rep("all", nrow(data)))
    found <- small_groups(data, small, fpr(everyone, w), fnr(everyone, w))
    alpha <- found$alpha
    rates <- c(rates, found$rates)
    defs <- c(defs, named(found$rates),
              summaries(found$rates$cfnr_small, "neg_small"),
              summaries(found$rates$cfpr_small, "pos_small"))
  }
  for (metric in names(rates)) {
    if (any(rates[[metric]] %in% c(0, 1))) warning(metric, " of some group is 0 or 1")
  }
  list(defs = defs, alpha = alpha)
}

named <- function(rates) {
  unlist(lapply(names(rates), function(m) setNames(rates[[m]], paste0(m, "_", names(rates[[m]])))))
}

# Of the differences of all pairs; rates of exactly 0 or 1 are left out. An undefined rate leaves
# the pairs, but makes all three undefined where groups are small.
summaries <- function(rates, name) {
  leave <- !grepl("small", name)
  rates <- rates[!rates %in% c(0, 1)]
  three <- c(NA, NA, NA)
  if (length(rates) > 1) {
    gaps <- abs(combn(rates, 2, diff))
    three <- c(mean(gaps, na.rm = leave), suppressWarnings(max(gaps, na.rm = leave)),
               var(gaps, na.rm = leave))
  }
  setNames(three, paste0(c("avg_", "max_", "var_"), name))
}

# By Bayes' rule: the rate of everybody, times P(group | call, outcome), over P(group | outcome).
small_groups <- function(data, small, cfpr, cfnr) {
  deal_folds(data$group, small$nfolds)  # for outcome models by networks; drawn whatever they are
  fold <- deal_folds(data$group, small$nfolds)
  under <- function(fit, ...) cut(predict(fit, transform(data, D = 0, ...), type = "response"))
  plain <- logistic("Y", c("D", small$outcome_xvars), data, small$exact)
  by_call <- logistic("Y", c("S", "D", small$outcome_xvars), data, small$exact)
  mu <- under(plain)
  mu1 <- under(by_call, S = 1)
  mu0 <- under(by_call, S = 0)
  p <- out_of_fold(data, small$pa_xvars_int, fold, small$exact)
  alpha <- NULL
  if (small$borrows) {
    outside <- small$external(data)
    alpha <- borrowed_share(p, outside, data$group, small$metric, small$exact)
    p <- alpha * outside + (1 - alpha) * p
  }
  own <- outer(as.integer(data$group), seq_len(nlevels(data$group)), "==")
  share <- function(x, of) colSums(x * of) / sum(x)
  label <- function(x) setNames(x, levels(data$group))
  list(alpha = alpha, rates = list(
    cfpr_small = label(cfpr * share((1 - mu1) * data$S, own) / share(1 - mu, p)),
    cfnr_small = label(cfnr * share(mu0 * (1 - data$S), own) / share(mu, p))))
}

# -- subsamples, intervals, u-values ---------------------------------------------------------------

# About n^m_factor rows, in proportion from every stratum, these in the order in which they appear.
subsample <- function(data, m_factor) {
  n <- nrow(data)
  stratum <- paste0(data$A1, data$A2, data$Y, data$S)
  unlist(lapply(unique(stratum), function(h) {
    rows <- which(stratum == h)
    rows[sample(length(rows), round(length(rows) * (floor(n^m_factor) / n)))]
  }))
}

# A row per figure: standard error, normal interval and what the package calls a t-interval, cut.
intervals <- function(defs, boot, n, m_factor, alpha) {
  t(vapply(names(defs), function(name) {
    est <- defs[[name]]
    z <- sqrt(n^m_factor) * (boot[, name] - est)
    se <- sd(z, na.rm = TRUE) / sqrt(n)
    tail <- quantile((boot[, name] - est) / se, c(1 - alpha / 2, alpha / 2), type = 7, na.rm = TRUE)
    half <- qnorm(1 - alpha / 2) * se
    c(se, est - half, est + half, est - se * tail, pmin(pmax(est - se * tail, 0), 1))
  }, numeric(7)))
}

u_values <- function(defs, null, delta) {
  vapply(names(defs), function(name) mean(defs[[name]] - null[, name] > delta, na.rm = TRUE), 0)
}

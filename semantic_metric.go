package main

// Which direction of a metric is better, told from its name alone: a table of the words that people use. Whoever names the metric and its
// goal with the job wins over it. It says nothing about values, and where the words leave doubt it says nothing at all.

import (
	"slices"
	"strings"
	"unicode"
)

// Goals of a metric: the direction that is better.
const (
	goalMin = "min"
	goalMax = "max"
)

// metricGoal tells the direction of a metric that is better, "min" or "max", from its name as it was written: val/loss, Top-1 accuracy,
// trainLoss_epoch, metrics/mAP50-95(B). "" when the name does not say.
//
// The last part between slashes that says something decides (Loss/train, reward/chosen, losses/psnr), and within it the last word that the
// tables know (top1_error, loss_scale). An error stays one whatever follows (error/top1).
func metricGoal(name string) string {
	goal, known := "", false
	for _, part := range slices.Backward(strings.Split(name, "/")) {
		words := goalWords(part)
		if !known {
			goal, known = goalOfWords(words)
		}
		if goal == goalMax && !slices.ContainsFunc(words, isNegation) && slices.ContainsFunc(words, func(w string) bool { return w == "error" || w == "err" }) {
			goal = goalMin
		}
	}
	return goal
}

// goalOfWords finds the last word or phrase that the tables know. Known with no goal means that there is none: loss_scale.
func goalOfWords(words []string) (goal string, known bool) {
	if slices.Contains(words, "std") { // how far a reward spreads is neither good nor bad
		return "", true
	}
	for end := len(words); end > 0; end-- {
		goal, n := goalEndingAt(words[:end])
		switch before := words[:end-n]; {
		case n == 0:
			continue
		case goal == "":
		case slices.Contains(words, "loss"): // dice_loss, loss_iou
			goal = goalMin
		case len(before) == 0 || !isNegation(before[len(before)-1]):
		case goal == goalMin: // neg_mean_squared_error
			goal = goalMax
		case words[end-1] == "elbo" || words[end-1] == "likelihood":
			goal = goalMin
		default: // negative_accuracy: that of the negatives?
			goal = ""
		}
		return goal, true
	}
	if slices.Contains(words, "score") || slices.Contains(words, "scores") { // the last resort: fid_score is another matter
		return goalMax, true
	}
	return "", false
}

func isNegation(word string) bool { return word == "neg" || word == "negative" }

// goalEndingAt is what the last n words mean; n is 0 when the tables do not know them.
func goalEndingAt(words []string) (goal string, n int) {
	for _, p := range goalPhrases() {
		if n := goalPhraseAt(words, p.words); n > 0 {
			return p.goal, n
		}
	}
	if goal, known := goalOfWord(words[len(words)-1]); known {
		return goal, 1
	}
	return "", 0
}

// goalPhraseAt is how many words a phrase has when words end with it, else 0. It is asked for every metric of every run of a list.
func goalPhraseAt(words []string, phrase string) int {
	n := 0
	for phrase != "" {
		n++
		if n > len(words) {
			return 0
		}
		i := strings.LastIndexByte(phrase, ' ')
		if have, want := words[len(words)-n], phrase[i+1:]; have != want && !(want == "#" && isGoalNumber(have)) {
			return 0
		}
		phrase = phrase[:max(i, 0)]
	}
	return n
}

// goalPhrase are words that mean another thing together than alone.
type goalPhrase struct{ words, goal string }

// goalPhrases lists them, longer ones before their ends; "#" is any number.
func goalPhrases() []goalPhrase {
	return []goalPhrase{
		{"mean squared error", goalMin},
		{"mean absolute error", goalMin},
		{"bits per byte", goalMin},
		{"bits per dim", goalMin},
		{"bits per char", goalMin},
		{"bits per character", goalMin},
		{"bits per token", goalMin},
		{"true positive rate", goalMax},
		{"true negative rate", goalMax},
		{"false positive rate", goalMin},
		{"false negative rate", goalMin},
		{"l # distance", goalMin},
		{"edit distance", goalMin},
		{"hausdorff distance", goalMin},
		{"chamfer distance", goalMin},
		{"inception distance", goalMin},
		{"wasserstein distance", goalMin},
		{"cross entropy", goalMin},
		{"log loss", goalMin},
		{"exact match", goalMax},
		{"explained variance", goalMax},
		{"success rate", goalMax},
		{"win rate", goalMax},
		{"dice coef", goalMax},
		{"dice coeff", goalMax},
		{"log likelihood", goalMax},
		{"learning rate", ""},
		{"pass #", goalMax},
		{"top #", goalMax},
		{"r #", goalMax},
	}
}

// goalOfWord is the table of single words, in lower case. Words in the last row take the direction away when they come last.
func goalOfWord(word string) (goal string, known bool) {
	switch word {
	case "loss", "losses", "cost", "objective", "error", "errors", "err", "perplexity", "ppl", "nll", "xent", "ce", "bce", "crossentropy", "bpc",
		"bpb", "bpd", "ece", "brier", "logloss", "mae", "mse", "rmse", "mape", "smape", "mase", "msle", "rmsle", "wer", "cer", "ter", "der", "eer",
		"fid", "kid", "fvd", "lpips", "hd95", "assd", "chamfer", "emd", "mpjpe", "epe", "divergence", "kld", "regret", "fpr", "fnr":
		return goalMin, true
	case "accuracy", "accuracies", "acc", "correct", "prec", "precision", "recall", "sensitivity", "specificity", "f1", "f1score", "fscore", "fbeta",
		"fmeasure", "iou", "miou", "giou", "dice", "jaccard", "ap", "map", "mar", "auc", "auroc", "auprc", "aucroc", "hits", "hit", "mrr", "ndcg", "dcg",
		"bleu", "sacrebleu", "rouge", "meteor", "chrf", "cider", "spice", "bertscore", "comet", "em", "kappa", "mcc", "spearman", "pearson", "kendall",
		"corr", "correlation", "corrcoef", "r2", "r2score", "psnr", "ssim", "msssim", "snr", "sdr", "sisnr", "sisdr", "pesq", "stoi", "mos", "reward",
		"rewards", "rew", "return", "returns", "success", "winrate", "likelihood", "elbo", "tpr", "tnr":
		return goalMax, true
	case "scale", "scaler", "weight", "weights", "coef", "coeff", "lambda", "alpha", "beta", "temperature", "threshold", "time", "sec", "secs", "second",
		"seconds", "ms", "lr", "norm", "var", "variance", "count", "num", "size", "len", "length", "samples", "tokens", "entropy", "kl", "grad", "gradient",
		"rejected", "ratio", "gap", "patience", "interval", "mem", "memory", "fraction", "frac", "clipfrac", "fps", "sps":
		return "", true
	}
	return "", false
}

// goalWords splits a name into words, lower case: at what is neither letter nor digit, before capitals (valLoss, BCELoss), between letters
// and digits (top1) unless the table knows the word with them (f1), and where a known word is glued to another (trainloss). What follows
// "vs" is the other axis.
func goalWords(name string) []string {
	var words []string
	for piece := range strings.FieldsFuncSeq(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		words = append(words, goalPiece(piece)...)
	}
	if i := slices.Index(words, "vs"); i >= 0 {
		words = words[:i]
	}
	return words
}

func goalPiece(piece string) []string {
	low := strings.ToLower(piece)
	if _, known := goalOfWord(low); known {
		return []string{low}
	}
	for _, part := range [...]string{"training", "train", "validation", "valid", "val", "testing", "test", "evaluation", "eval", "dev", "epoch", "batch", "mean", "avg", "total", "best"} {
		if rest, ok := strings.CutPrefix(low, part); ok {
			if _, known := goalOfWord(rest); known {
				return []string{part, rest}
			}
		}
	}
	for _, end := range [...]string{"loss", "accuracy", "error"} {
		if strings.HasSuffix(low, end) {
			return []string{strings.TrimSuffix(low, end), end}
		}
	}
	if i := goalSeam(piece); i > 0 {
		return append(goalPiece(piece[:i]), goalPiece(piece[i:])...)
	}
	return []string{low}
}

// goalSeam is where a piece falls into two: at its last digits first (mAP50), else at the first capital that begins a word, else between
// letters and digits; 0 when nowhere.
func goalSeam(piece string) int {
	if head := strings.TrimRight(piece, "0123456789"); head != "" && head != piece {
		if _, known := goalOfWord(strings.ToLower(head)); known {
			return len(head)
		}
	}
	runes := []rune(piece)
	at := 0
	for i := range runes[:max(0, len(runes)-1)] {
		at += len(string(runes[i]))
		here, next := runes[i], runes[i+1]
		if unicode.IsUpper(next) && (unicode.IsLower(here) || i+2 < len(runes) && unicode.IsUpper(here) && unicode.IsLower(runes[i+2])) {
			return at
		}
	}
	if i := strings.IndexFunc(piece, unicode.IsDigit); i > 0 {
		return i
	}
	if i := strings.IndexFunc(piece, unicode.IsLetter); i > 0 {
		return i
	}
	return 0
}

func isGoalNumber(word string) bool { return strings.Trim(word, "0123456789") == "" }

package main

import (
	"strings"
	"testing"
)

// TestMetricGoal: names as real training programs write them, by direction.
func TestMetricGoal(t *testing.T) {
	for goal, names := range map[string]string{
		goalMin: `loss|train/loss|train_loss|Training loss|Loss/train|epoch_loss|train/epoch_loss|validation/epoch_loss|loss_total|total_loss|g_loss|d_loss
			loss_G|loss_D|Loss/generator|gan/discriminator_loss|eval/loss|val_loss|validation/loss|Test loss (avg on test)|eval_loss|perplexity|eval/perplexity
			train_ppl|nll|val_nll|lm_loss|lm loss|lm loss validation|lm loss validation PPL|mlm_loss|loss/step|loss_step|loss_epoch|train_loss_step
			train_loss_epoch|trainLoss|valLoss|ValidationLoss|TrainLoss|trainloss|valloss|losses/train|Loss/val|valid_loss|dev_loss|test/loss
			evaluation_loss_vs_iterations|train/box_loss|train/cls_loss|val/dfl_loss|loss_cls|loss_bbox|loss_rpn_cls|kl_loss|cross_entropy
			train/cross_entropy_loss|ce_loss|bce|dice_loss|train/policy_loss|train/value_loss|train/policy_gradient_loss|train/entropy_loss|actor_loss
			critic_loss|losses/qf1_loss|L1 Distance (avg on test)|wer|eval_wer|cer|error|top1_error|val/err|error_rate|FID|fid_score|MAE|val_mae
			mean_absolute_error|rmse|mse|lpips|bpc|bits_per_byte|ece|neg_log_likelihood|negative_log_likelihood|neg_elbo|sft_loss|dpo_loss
			contrastive_loss|ctc_loss|aux_loss|reg_loss|smooth_l1_loss|mse_loss|cost|objective|training/Loss|metrics/train.loss|train-loss|running_loss
			avg_loss|loss_avg|mean loss|train_loss_avg|Loss|model/loss|EER
			BCEWithLogitsLoss|trainMAE|error/top1|Top-1 error|NLLLoss|val/RMSE_epoch|loss[0]|train/loss [nats]|loss_iou|valid/WER (%)|false_positive_rate
			brier_score|time_loss|reward_loss|kl divergence|validation_loss@1000|perplexity/wikitext|my.model.val.loss|1_loss|ppl2`,
		goalMax: `evaluation_accuracy_vs_iterations|accuracy|epoch_accuracy|val_acc|eval/accuracy|train/top1|top-5 accuracy|acc@1|IoU (avg on test)|mIoU
			val/mIoU|F1|eval_f1|f1-score|macro_f1|bleu|eval/sacrebleu|rougeL|rouge1|eval_rougeLsum|rollout/ep_rew_mean|reward|episode_return
			eval/mean_reward|mAP|metrics/mAP50(B)|metrics/mAP50-95(B)|mAP@0.5|metrics/precision(B)|val/AP|auc|val_auroc|R2|r2_score|psnr|ssim|val_dice
			Dice coefficient|log_likelihood|elbo|eval/exact_match|pass@1|hits@10|ndcg@10|MRR|train/explained_variance|reward/chosen|rewards/margins
			rewards/accuracies|train/mean_token_accuracy|kappa|mcc|spearman|chrf++|meteor
			valIoU|macroF1|F1Score|losses/psnr|Loss/Accuracy|dice_coef|charts/episodic_return|neg_mean_squared_error|eval/success_rate|winrate
			accuracy_step|trainAccuracy|val_accuracy_epoch|Accuracy/val|hits_at_10|R^2|score|true_negative_rate|weighted avg/f1-score|Prec@1|AP50|sacreBLEU
			rewards/accuracy_reward/mean|bestAcc|test.acc1`,
		"": `lr|learning_rate|train/learning_rate|lr-AdamW|lr-Adam/pg1|epoch|train/epoch|global_step|grad_norm|train/grad_norm|gradient norm|time|Epoch time
			train_runtime|eval_samples_per_second|train/loss_scale|loss_scale|loss scale|kl_weight|tokens_per_sec|throughput|mfu|gpu_mem|momentum
			weight_decay|num_tokens|iteration-time|batch-size|params norm|entropy|rollout/ep_len_mean|time/fps|train/clip_fraction|total_flos
			losses/clipfrac|losses/approx_kl|losses/entropy|reward_std|rewards/accuracy_reward/std|std_reward|rewards/rejected|negative_accuracy|objective/kl
			loss_weight|accuracy_time|Loss/lr|foo|x|1|%|///|map_size|charts/SPS|batchnorm|temperature|loss/scale`,
	} {
		for name := range strings.FieldsFuncSeq(names, func(r rune) bool { return r == '|' || r == '\n' }) {
			name = strings.TrimSpace(name)
			if got := metricGoal(name); got != goal {
				t.Errorf("%q: %q, want %q", name, got, goal)
			}
		}
	}
	if got := metricGoal(""); got != "" {
		t.Errorf("no name: %q", got)
	}
}

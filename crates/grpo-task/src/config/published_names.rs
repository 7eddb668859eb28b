//! Names that papers and other programs (TRL, verl, REINVENT, Hugging Face) give to settings.

/// Published names and the keys of `grpo train` with this meaning.
const NAMES: &[(&str, &str)] = &[
    ("beta", "loss.kl_coef"),
    ("kl_beta", "loss.kl_coef"),
    ("beta_kl", "loss.kl_coef"),
    ("kl_coef", "loss.kl_coef"),
    ("kl_coeff", "loss.kl_coef"),
    ("kl_weight", "loss.kl_coef"),
    ("kl_penalty", "loss.kl_coef"),
    ("kl_loss_coef", "loss.kl_coef"),
    ("init_kl_coef", "loss.kl_coef"),
    ("kl_estimator", "loss.kl_estimator"),
    ("kl_loss_type", "loss.kl_estimator"),
    ("epsilon", "loss.epsilon_low"),
    ("eps", "loss.epsilon_low"),
    ("eps_clip", "loss.epsilon_low"),
    ("clip_eps", "loss.epsilon_low"),
    ("clip_epsilon", "loss.epsilon_low"),
    ("clip_range", "loss.epsilon_low"),
    ("clip_ratio", "loss.epsilon_low"),
    ("cliprange", "loss.epsilon_low"),
    ("epsilon_low", "loss.epsilon_low"),
    ("clip_ratio_low", "loss.epsilon_low"),
    ("epsilon_high", "loss.epsilon_high"),
    ("clip_ratio_high", "loss.epsilon_high"),
    ("delta", "loss.delta"),
    ("loss_type", "loss.preset"),
    ("importance_sampling_level", "loss.ratio_level"),
    ("entropy_coef", "loss.entropy_bonus"),
    ("entropy_coeff", "loss.entropy_bonus"),
    ("entropy_beta", "loss.entropy_bonus"),
    ("scale_rewards", "advantage.scale"),
    ("norm_adv_by_std_in_grpo", "advantage.scale"),
    ("adv_estimator", "advantage.baseline"),
    ("k", "train.group_size"),
    ("g", "train.group_size"),
    ("group_size", "train.group_size"),
    ("n_generations", "train.group_size"),
    ("num_generations", "train.group_size"),
    ("n_samples", "train.group_size"),
    ("num_samples", "train.group_size"),
    ("n_samples_per_prompt", "train.group_size"),
    ("num_return_sequences", "train.group_size"),
    ("rollout_n", "train.group_size"),
    ("steps", "train.steps"),
    ("n_steps", "train.steps"),
    ("num_steps", "train.steps"),
    ("max_steps", "train.steps"),
    ("total_steps", "train.steps"),
    ("train_steps", "train.steps"),
    ("total_training_steps", "train.steps"),
    ("epochs", "train.epochs"),
    ("n_epochs", "train.epochs"),
    ("num_epochs", "train.epochs"),
    ("num_train_epochs", "train.epochs"),
    ("total_epochs", "train.epochs"),
    ("batch_size", "train.prompts_per_step"),
    ("train_batch_size", "train.prompts_per_step"),
    ("per_device_train_batch_size", "train.prompts_per_step"),
    ("rollout_batch_size", "train.prompts_per_step"),
    ("prompts_per_step", "train.prompts_per_step"),
    ("mu", "train.updates_per_rollout"),
    ("num_iterations", "train.updates_per_rollout"),
    ("ppo_epochs", "train.updates_per_rollout"),
    ("micro_batch_size", "train.micro_batch_tokens"),
    ("mini_batch_size", "train.micro_batch_tokens"),
    ("gradient_accumulation_steps", "train.micro_batch_tokens"),
    ("gradient_checkpointing", "train.activation_checkpointing"),
    ("bf16", "train.precision"),
    ("fp16", "train.precision"),
    ("lr", "optimizer.learning_rate"),
    ("learning_rate", "optimizer.learning_rate"),
    ("weight_decay", "optimizer.weight_decay"),
    ("betas", "optimizer.betas"),
    ("adam_beta1", "optimizer.betas"),
    ("adam_beta2", "optimizer.betas"),
    ("adam_epsilon", "optimizer.epsilon"),
    ("grad_clip", "optimizer.max_grad_norm"),
    ("clip_grad_norm", "optimizer.max_grad_norm"),
    ("gradient_clipping", "optimizer.max_grad_norm"),
    ("max_grad_norm", "optimizer.max_grad_norm"),
    ("warmup", "schedule.warmup_steps"),
    ("warmup_steps", "schedule.warmup_steps"),
    ("warmup_ratio", "schedule.warmup_steps"),
    ("lr_warmup_steps", "schedule.warmup_steps"),
    ("lr_scheduler_type", "schedule.decay"),
    ("temperature", "sampling.temperature"),
    ("top_k", "sampling.top_k"),
    ("top_p", "sampling.top_p"),
    ("min_p", "sampling.min_p"),
    ("repetition_penalty", "sampling.repetition_penalty"),
    ("max_len", "sampling.max_new_tokens"),
    ("max_length", "sampling.max_new_tokens"),
    ("max_tokens", "sampling.max_new_tokens"),
    ("max_new_tokens", "sampling.max_new_tokens"),
    ("max_completion_length", "sampling.max_new_tokens"),
    ("max_response_length", "sampling.max_new_tokens"),
    ("stop_strings", "sampling.stop"),
    ("r", "lora.rank"),
    ("lora_r", "lora.rank"),
    ("lora_rank", "lora.rank"),
    ("lora_alpha", "lora.alpha"),
    ("lora_dropout", "lora.dropout"),
    ("lora_target_modules", "lora.targets"),
    ("target_modules", "lora.targets"),
    ("use_rslora", "lora.rslora"),
    ("max_prompt_length", "data.max_prompt_tokens"),
    ("dataset", "data.file"),
    ("dataset_name", "data.file"),
    ("train_file", "data.file"),
    ("train_files", "data.file"),
    ("prompts", "data.file"),
    ("reward_fn", "reward.type"),
    ("reward_funcs", "reward.type"),
    ("reward_function", "reward.type"),
    ("reward_weights", "reward.weights"),
    ("model_name", "model"),
    ("model_path", "model"),
    ("model_name_or_path", "model"),
    ("base_model", "model"),
    ("prior", "model"),
    ("prior_file", "model"),
    ("output_dir", "run"),
    ("run_name", "run"),
    ("run_dir", "run"),
    ("random_seed", "seed"),
    ("ref_update_steps", "reference.every_steps"),
    ("ref_model_sync_steps", "reference.every_steps"),
    ("sync_ref_model", "reference.every_steps"),
    ("ref_model_mixup_alpha", "reference.mix"),
    ("use_vllm", "rollout.engine"),
    ("eval_steps", "eval.every"),
    ("save_steps", "save.every"),
    ("save_total_limit", "save.keep_last"),
    ("log_completions", "save.completions_every"),
];

/// Returns the key that is probably meant by `name` in `section`, which has the `known` keys. The
/// key is `None` if the file has no such section.
pub(super) fn published_name(section: &str, name: &str, known: &[String]) -> Option<&'static str> {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let &(_, key) = NAMES.iter().find(|(published, _)| *published == name)?;
    let (first, rest) = key.split_once('.').unwrap_or(("", key));
    let is_known = match section {
        // Only files of `grpo train` have groups.
        "" => known.iter().any(|known| known == first || (first.is_empty() && known == rest)),
        section if section == first => known.iter().any(|known| known == rest),
        "train" | "loss" | "sampling" | "advantage" | "schedule" => true,
        _ => false,
    };
    // A slip in a name of this section is likelier.
    (is_known && (section == first || !known.contains(&name))).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_field_are_known() {
        let top = ["model", "run", "train", "loss", "optimizer", "sampling"].map(str::to_owned);
        for (section, name, expected) in [
            ("", "kl_beta", Some("loss.kl_coef")),
            ("", "n_generations", Some("train.group_size")),
            ("", "num-generations", Some("train.group_size")),
            ("", "LR", Some("optimizer.learning_rate")),
            ("", "model_name_or_path", Some("model")),
            ("", "eval_steps", None),
            ("", "colour", None),
            ("train", "lr", Some("optimizer.learning_rate")),
            ("data", "lr", None),
        ] {
            assert_eq!(published_name(section, name, &top), expected, "{section} {name}");
        }
        let optimizer = ["learning_rate".to_owned()];
        let found = published_name("optimizer", "lr", &optimizer);
        assert_eq!(found, Some("optimizer.learning_rate"));
        assert_eq!(published_name("optimizer", "grad_clip", &optimizer), None);
    }

    #[test]
    fn each_name_is_listed_once() {
        let mut names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }
}
